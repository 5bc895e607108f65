/** Pictures of a request, read by another road than they were written: what vLLM's processor of Qwen2-VL makes of them. */

/** Sizes that the server's own model has. */
export interface StubEyes {
  readonly image_token_id: number;
  readonly video_token_id: number;
  readonly patch_size: number;
  readonly temporal_patch_size: number;
  readonly spatial_merge_size: number;
  /** Its own processor resizes to so many times the sides. */
  readonly enlarges?: number;
}

export interface StubPicture {
  readonly kind: 'image' | 'video';
  /** PNG files. */
  readonly frames: readonly Buffer[];
  readonly width: number;
  readonly height: number;
  readonly framesPerSecond: number | null;
}

/** Throws for what vLLM could not read. */
export function readPart({ type, url }: { readonly type: string; readonly url: string }): StubPicture {
  const [, media, base64] = /^data:(image\/png|video\/avi);base64,(.+)$/.exec(url) ?? [];
  if (media === undefined || base64 === undefined) throw new Error(`not a data URL: ${url.slice(0, 40)}`);
  const bytes = Buffer.from(base64, 'base64');
  if (type === 'image_url' && media === 'image/png') {
    return { kind: 'image', frames: [bytes], ...sizeOf(bytes), framesPerSecond: null };
  }
  if (type !== 'video_url' || media !== 'video/avi') throw new Error(`${type} as ${media}`);
  return { kind: 'video', ...readAvi(bytes) };
}

/** The prompt with as many tokens for each image as it has, where one stands for each. */
export function expanded(ids: readonly number[], images: readonly StubPicture[], eyes: StubEyes): number[] {
  const left = [...images];
  const out = ids.flatMap((id) => {
    const kind = id === eyes.image_token_id ? 'image' : id === eyes.video_token_id ? 'video' : null;
    if (kind === null) return [id];
    const image = left.shift();
    if (image?.kind !== kind) throw new Error(`Failed to apply prompt replacement for mm_items['${kind}'][0]`);
    const side = (eyes.patch_size * eyes.spatial_merge_size) / (eyes.enlarges ?? 1);
    const steps = Math.ceil(image.frames.length / eyes.temporal_patch_size);
    return Array<number>(steps * (image.width / side) * (image.height / side)).fill(id);
  });
  if (left.length > 0) throw new Error(`Failed to apply prompt replacement for mm_items['${left[0].kind}'][0]`);
  return out;
}

function sizeOf(png: Buffer): { readonly width: number; readonly height: number } {
  return { width: png.readUInt32BE(16), height: png.readUInt32BE(20) };
}

function readAvi(bytes: Buffer): Omit<StubPicture, 'kind'> {
  const frames: Buffer[] = [];
  let framesPerSecond = 0;
  const walk = (from: number, end: number): void => {
    for (let at = from; at + 8 <= end;) {
      const name = bytes.toString('latin1', at, at + 4);
      const size = bytes.readUInt32LE(at + 4);
      const content = at + 8;
      if (content + size > end) throw new Error(`${name} of ${size} bytes reaches beyond what holds it`);
      if (name === 'RIFF' || name === 'LIST') walk(content + 4, content + size);
      if (name === 'strh') framesPerSecond = bytes.readUInt32LE(content + 24) / bytes.readUInt32LE(content + 20);
      if (name === '00dc') frames.push(bytes.subarray(content, content + size));
      at = content + size + (size % 2);
    }
  };
  walk(0, bytes.length);
  return { frames, ...sizeOf(frames[0]), framesPerSecond };
}
