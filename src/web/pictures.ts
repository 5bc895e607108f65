/** Pictures of a run: those that episodes name, and the contact sheet. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { Refusal } from '../http/refusal.js';
import type { Reply } from '../http/reply.js';
import type { RunPaths } from '../run/paths.js';
import { GUARD_HEADERS } from './page_files.js';

const MOST_BYTES = 64 * 1024 * 1024;
const PNG = Buffer.from('89504e470d0a1a0a', 'hex');
const CONTACT_SHEET = 'contact_sheet';

/**
 * The picture of a name: that of an image in media/, which never changes, or the contact sheet. Raises Refusal 404 for one that is gone, and for a file
 * that is no PNG: whatever lies there under such a name is not passed on.
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
  let file: number;
  try {
    // A pipe of that name would be waited for.
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return null;
  }
  try {
    const found = fstatSync(file);
    if (!found.isFile() || found.size > MOST_BYTES) return null;
    const bytes = readFileSync(file);
    return bytes.subarray(0, PNG.length).equals(PNG) ? bytes : null;
  } finally {
    closeSync(file);
  }
}
