/** Models that another program exported to ONNX: how such folders are recognised, and which files hold the network. */

/** The `model_type` in an image tokenizer's config.json. */
export const EXPORTED = 'exported_image_tokenizer';

export const EXPORTED_FILES = { encoder: 'encoder.onnx', decoder: 'decoder.onnx' } as const;
