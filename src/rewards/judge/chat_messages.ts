/** Chat requests, as the gateway and the rule judge read them. */
import { z } from 'zod';
import { parseJson } from '../../core/http/json.js';
import { badRequest } from '../../core/http/refusal.js';

const partSchema = z.discriminatedUnion(
  'type',
  [
    z.object({ type: z.literal('text'), text: z.string() }),
    z.object({ type: z.literal('image_url'), image_url: z.object({ url: z.string() }) }),
  ],
  { error: 'the type of a part must be text or image_url' },
);

const messageSchema = z.object({
  role: z.string(),
  content: z.union([z.string(), z.array(partSchema), z.null()]).optional(),
});
export type ChatMessage = z.output<typeof messageSchema>;

/** The fields of every request. A reader of more fields extends this. */
export const chatSchema = z.object({
  model: z.string().min(1),
  messages: z.array(messageSchema).min(1, 'give at least one message'),
  stream: z.boolean().nullish(),
});

/**
 * The size limit of a request's texts without images: a million tokens have about as many bytes. Texts take a hundred times as long to read
 * as images, and everyone waits meanwhile.
 */
const MAX_TEXT_BYTES = 4_000_000;

/**
 * Reads a body by a schema that extends `chatSchema`. Raises Refusal 400 for an invalid body, and for a request for streaming. `json` is
 * the whole body, `request` the fields of the schema.
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

/** The texts of a message, one for each text part. */
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
