/** What reward servers may speak, for the schema; `server/client/protocol.ts` speaks it. */

/** `editrl`: this program's reward server. `calligrapher`: that of https://github.com/yuriYanZeXuan/Calligrapher, train/rl_ip/reward_server.py. */
export const protocols = ['editrl', 'calligrapher'] as const;
export type ProtocolName = (typeof protocols)[number];

/** What a Calligrapher server scores. */
export const CALLIGRAPHER_TERMS = ['ocr_confidence', 'vlm_score'] as const;
