/** Chat requests as those read them who answer them: the gateway and the rule judge. */
import { z } from 'zod';
import { parseJson } from '../../core/http/json.js';
import { badRequest } from '../../core/http/refusal.js';

const partSchema = z.discriminatedUnion(
  'type',
  [
    z.object({ type: z.literal('text'), text: z.string() }),
    z.object({ type: z.literal('image_url'), image_url: z.object({ url: z.string() }) }),
  ],
  { error: 'a part has to be of type text or image_url' },
);

const messageSchema = z.object({
  role: z.string(),
  content: z.union([z.string(), z.array(partSchema), z.null()]).optional(),
});
export type ChatMessage = z.output<typeof messageSchema>;

/** What every request has; whoever reads more of it extends this. */
export const chatSchema = z.object({
  model: z.string().min(1),
  messages: z.array(messageSchema).min(1, 'at least one message is needed'),
  stream: z.boolean().nullish(),
});

/**
 * Bytes of a request's texts, its images aside: a million tokens have about as many. Texts cost a hundred times as long to read as images,
 * and everybody waits meanwhile.
 */
const MAX_TEXT_BYTES = 4_000_000;

/**
 * Reads a body by a schema that extends `chatSchema`. Raises Refusal 400 for what is none, and for one that wants streaming. `json` is all of
 * it, `request` the fields of the schema.
 */
export function parseChat<T extends z.output<typeof chatSchema>>(
  bytes: Buffer,
  schema: z.ZodType<T>,
): { readonly json: unknown; readonly request: T } {
  const json = parseJson(bytes, MAX_TEXT_BYTES);
  const parsed = schema.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const path = issue.path.join('.');
    throw badRequest(`${path === '' ? 'The body' : path}: ${issue.message}`, path === '' ? undefined : path);
  }
  if (parsed.data.stream === true) throw badRequest('This server does not stream: leave out "stream".', 'stream');
  return { json, request: parsed.data };
}

/** The texts of a message, one for each of its parts that is one. */
export function textsOf({ content }: ChatMessage): readonly string[] {
  if (!Array.isArray(content)) return [content ?? ''];
  return content.flatMap((part) => (part.type === 'text' ? [part.text] : []));
}

/** The URLs of all images, in order. */
export function imagesOf(messages: readonly ChatMessage[]): readonly string[] {
  return messages.flatMap(({ content }) =>
    Array.isArray(content) ? content.flatMap((part) => (part.type === 'image_url' ? [part.image_url.url] : [])) : [],
  );
}
