/** What is uploaded, and where to. */

/** A file to upload, and its content; null if it is gone. */
export interface MediaFile {
  readonly name: string;
  readonly read: () => Uint8Array | null;
}

/** A run on a server. */
export interface UploadTarget {
  readonly entity: string;
  readonly project: string;
  readonly run: string;
}
