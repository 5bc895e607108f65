/** Python's `strftime`, which dated chat templates call. */

const weekdays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const months = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December']; // prettier-ignore

/** Local time in the C locale. Throws an Error for a directive that is not covered. */
export function strftime(date: Date, format: string): string {
  const two = (value: number): string => String(value).padStart(2, '0');
  const hour = date.getHours() % 12 || 12;
  const directives: Readonly<Record<string, string>> = {
    A: weekdays[date.getDay()],
    a: weekdays[date.getDay()].slice(0, 3),
    B: months[date.getMonth()],
    b: months[date.getMonth()].slice(0, 3),
    d: two(date.getDate()),
    H: two(date.getHours()),
    I: two(hour),
    M: two(date.getMinutes()),
    m: two(date.getMonth() + 1),
    p: date.getHours() < 12 ? 'AM' : 'PM',
    S: two(date.getSeconds()),
    Y: String(date.getFullYear()),
    y: two(date.getFullYear() % 100),
    '%': '%',
    '-d': String(date.getDate()),
    '-H': String(date.getHours()),
    '-I': String(hour),
    '-m': String(date.getMonth() + 1),
    F: `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`,
    T: `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`,
  };
  return format.replace(/%(-?.?)/gsu, (found, directive: string) => {
    const value = directives[directive];
    if (value === undefined) throw new Error(`'${found}' of strftime_now is not covered`);
    return value;
  });
}
