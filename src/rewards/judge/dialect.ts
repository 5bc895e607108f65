/** The fields of a request: two fixed forms, by the server's address, without the fields that a config leaves out. */

/**
 * Fields that a question can be asked without, the most dispensable first. Without `max_completion_tokens` the limit of a reply is sent under its
 * older name `max_tokens`.
 */
export const leavableFields = [
  'top_k',
  'repetition_penalty',
  'seed',
  'n',
  'top_p',
  'response_format',
  'temperature',
  'max_completion_tokens',
] as const;
export type LeavableField = (typeof leavableFields)[number];

/** `vllm`: all fields, which most servers of open models take or ignore. `openai`: those of OpenAI's own schema. */
export type Dialect = 'vllm' | 'openai';

/** Plain data, so that another thread can take it. */
export interface RequestForm {
  readonly dialect: Dialect;
  /** Fields that the config leaves out. */
  readonly leaveOut: readonly LeavableField[];
}

/** All fields that servers of open models take. */
export const vllmForm: RequestForm = { dialect: 'vllm', leaveOut: [] };

/** vLLM fills gaps from the checkpoint's own defaults. OpenAI has none of these, and refuses the fields. */
const notOfOpenAi: readonly string[] = ['top_k', 'repetition_penalty'];

/** Hosts of OpenAI's own service and of its resale by Azure. */
const openAiHost = /(?:^|\.)(?:api\.openai\.com|openai\.azure\.com)$/;

/** The dialect of the servers at these base URLs: `openai` where any of them is OpenAI's own. */
export function dialectOf(endpoints: readonly string[]): Dialect {
  return endpoints.some((url) => URL.canParse(url) && openAiHost.test(new URL(url).hostname)) ? 'openai' : 'vllm';
}

/** The fields that a server is sent. */
export function keptFields(fields: object, { dialect, leaveOut }: RequestForm): Record<string, unknown> {
  const left: ReadonlySet<string> = new Set([...(dialect === 'openai' ? notOfOpenAi : []), ...leaveOut]);
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !left.has(name)));
}

/** How servers name fields that they refuse, if not by the name alone. */
const otherNames: Partial<Readonly<Record<LeavableField, RegExp>>> = {
  // A letter is a field's name only in quotes, or where a name is announced.
  n: /(['"`])n\1|(?:param(?:eter)?|argument|field)s?(?: supplied)?:? n(?![\w-])/i,
  response_format:
    /(?<![\w-])(?:response_?format|json[_ ]schema|structured[_ ]outputs?|guided[_ ](?:decoding|json)|grammar)(?![\w-])/i,
};

/** A field's name in an error; parts of other words, a model's name among them, are no field. */
function namePattern(field: LeavableField): RegExp {
  return otherNames[field] ?? new RegExp(`(?<![\\w-])${field.replaceAll('_', '_?')}(?![\\w-])`, 'i');
}

/** An error of a server, as far as it may be about a field. */
export interface FieldError {
  readonly status: number;
  /** The field in the error's body; null where it names none there. */
  readonly param: string | null;
  /** Its code and message. */
  readonly words: string;
}

/** 422 is what servers on FastAPI say to fields that they do not know; llama.cpp says 501 to what it cannot do. */
const refusals: ReadonlySet<number> = new Set([400, 422, 501]);
/** LiteLLM's own class of error, with which some of its versions send a 500. */
const refusedByProxy = /UnsupportedParams/i;

/** The field that a server's error most likely refuses; null where it names none that can be left out. */
export function refusedField({ status, param, words }: FieldError): LeavableField | null {
  if (!refusals.has(status) && !refusedByProxy.test(words)) return null;
  // A server that says which field it means (`response_format.json_schema`) means no other.
  const meant = leavableFields.find((field) => field === param?.split(/[.[]/)[0]);
  if (meant !== undefined) return meant;
  const said = leavableFields.flatMap((field) => {
    const at = words.search(namePattern(field));
    return at < 0 ? [] : [{ field, at }];
  });
  // "temperature and top_p cannot both be specified": the more dispensable one goes.
  if (!/\bboth\b/i.test(words)) said.sort((a, b) => a.at - b.at);
  return said.at(0)?.field ?? null;
}
