import { serverContract } from './servers.contract.js';
import { serverKinds } from './server_kinds.js';

for (const kind of serverKinds) serverContract(kind);
