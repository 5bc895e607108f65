/** How long at least one of several overlapping works was under way; times in milliseconds. */
export class BusyTime {
  #underWay = 0;
  #since = 0;
  #total = 0;

  begin(now: number): void {
    if (this.#underWay++ === 0) this.#since = now;
  }

  end(now: number): void {
    if (--this.#underWay === 0) this.#total += now - this.#since;
  }

  /** Time covered by work that has ended. Time shared with work still under way is added when that ends. */
  get total(): number {
    return this.#total;
  }
}
