/** Gateways and the stub judges behind them, closed after each test. */
import { afterEach } from 'vitest';
import type { z } from 'zod';
import { gatewayOptionsSchema } from '../../../src/rewards/gateway/options.js';
import { startGateway as start, type Gateway, type GatewayServices } from '../../../src/rewards/gateway/server.js';
import { startStubJudge, stubModel, type Behave, type StubJudge, type StubOptions } from '../judge/stub_judge.js';

export type GatewayOptionsInput = z.input<typeof gatewayOptionsSchema>;

/** A gateway with these options and the defaults of the others. */
export async function startGateway(options: GatewayOptionsInput, services: GatewayServices = {}): Promise<Gateway> {
  return start(gatewayOptionsSchema.parse(options), services);
}

export function gatewayPlace() {
  const opened: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const close of opened.splice(0).reverse()) await close();
  });
  return {
    async judge(this: void, behave: Behave, options: StubOptions = {}): Promise<StubJudge> {
      const stub = await startStubJudge(behave, options);
      opened.push(stub.close);
      return stub;
    },
    /** A gateway that has waited for its first upstream. */
    async gateway(
      this: void,
      options: Partial<GatewayOptionsInput> & Pick<GatewayOptionsInput, 'upstreams'>,
      services: GatewayServices = {},
      waits = true,
    ): Promise<Gateway> {
      const running = await startGateway({ model: stubModel, port: 0, ...options }, services);
      opened.push(() => running.close());
      if (waits) await running.ready;
      return running;
    },
  };
}

/** Answers at once to the readiness check, and as told to everything else. */
export function afterReadiness(behave: Behave): Behave {
  return (request) => (request.text.startsWith('This is a check') ? { kind: 'text', text: 'fine' } : behave(request));
}
