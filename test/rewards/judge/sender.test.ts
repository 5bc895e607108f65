import { openLocalSender } from '../../../src/rewards/judge/sender.js';
import { senderContract } from './sender_contract.js';

senderContract('in this thread', openLocalSender);
