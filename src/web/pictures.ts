/** Pictures of a run: those that episodes refer to, and the contact sheet. */
import { RunError } from '../core/errors.js';
import { readPlain } from '../core/plain_file.js';
import { Refusal } from '../http/refusal.js';
import type { Reply } from '../http/reply.js';
import type { RunPaths } from '../run/paths.js';
import { GUARD_HEADERS } from './page_files.js';

const PNG = Buffer.from('89504e470d0a1a0a', 'hex');
const CONTACT_SHEET = 'contact_sheet';

/**
 * The picture with this name: an image in media/, which never changes, or the contact sheet. Raises Refusal 404 for a missing one, and for a file
 * that is not a PNG: other content under such a name is never served.
 */
export function pictureOf(paths: RunPaths, name: string): Reply {
  const sheet = name === CONTACT_SHEET;
  if (!sheet && !/^[0-9a-f]{64}$/.test(name)) throw new Refusal('not_found', 'No picture has such a name.');
  const body = readPng(sheet ? paths.contactSheet : paths.media(name));
  if (body === null) throw new Refusal('not_found', 'The picture is gone, or is none.');
  const kept = sheet ? 'no-store' : 'private, max-age=31536000, immutable';
  return { status: 200, type: 'image/png', body, headers: { ...GUARD_HEADERS, 'cache-control': kept } };
}

function readPng(path: string): Buffer | null {
  try {
    const bytes = readPlain(path);
    return bytes !== null && bytes.subarray(0, PNG.length).equals(PNG) ? bytes : null;
  } catch (error) {
    if (error instanceof RunError) return null;
    throw error;
  }
}
