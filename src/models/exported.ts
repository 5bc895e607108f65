/** Image tokenizers that another program exported to ONNX: how their folders are known, and which files hold the network. */

/** What `model_type` of such a folder's config.json says. */
export const EXPORTED = 'exported_image_tokenizer';

export const EXPORTED_FILES = { encoder: 'encoder.onnx', decoder: 'decoder.onnx' } as const;
