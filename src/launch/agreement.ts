/** Figures of comparisons with transformers and peft, as tests write them, and their table in docs/reference/coverage.md. */

/** Compared quantities, with their names on the page. */
const quantities = {
  states: 'hidden states',
  logProbs: 'log-probabilities',
  gradients: 'gradients of all weights',
  adapterLogProbs: "log-probabilities with peft's LoRA",
  adapterGradients: "gradients of peft's LoRA",
  exportedAdapter: 'our LoRA in peft',
  merged: 'our merged model in transformers',
} as const;
export type Quantity = keyof typeof quantities;

/** One small random model compared with transformers and peft in float32. */
export interface Agreement {
  /** The `model_type` of its config.json. */
  readonly model_type: string;
  readonly inputs: 'text' | 'text, images' | 'text, images, clips';
  readonly transformers: string;
  /** Null: compared without an adapter. */
  readonly peft: string | null;
  /** The largest difference of each compared quantity, relative to its largest value. */
  readonly differences: Readonly<Partial<Record<Quantity, number>>>;
  /** Greedy answers that equal those of the other programs, of all compared. Null: none were compared. */
  readonly answers: { readonly equal: number; readonly compared: number } | null;
  /** The linear layers that `all-linear` adapts, by the last part of their names. */
  readonly adapted: readonly string[];
}

/** Comparisons by the name of their model. */
export type Agreements = Readonly<Record<string, Agreement>>;

const columns: Readonly<Record<string, (found: Agreement) => string>> = {
  '`model_type`': ({ model_type }) => `\`${model_type}\``,
  inputs: ({ inputs }) => inputs,
  'LoRA layers': ({ adapted }) => adapted.map((layer) => `\`${layer}\``).join(', '),
  ...Object.fromEntries(
    (Object.keys(quantities) as Quantity[]).map((key) => [
      quantities[key],
      ({ differences }: Agreement) => differences[key]?.toExponential(1) ?? '',
    ]),
  ),
  'equal greedy answers': ({ answers }) => (answers === null ? '' : `${answers.equal} of ${answers.compared}`),
  transformers: ({ transformers }) => transformers,
  peft: ({ peft }) => peft ?? '',
};

/** The section of the page about compared models. `covered` are all supported types. */
export function agreementSection(found: Agreements, covered: readonly string[]): string[] {
  const names = Object.keys(columns);
  const compared = new Set(Object.values(found).map(({ model_type }) => model_type));
  const others = covered.filter((type) => !compared.has(type)).map((type) => `\`${type}\``);
  const rows = Object.entries(found).map(
    ([name, one]) => `| ${name} | ${names.map((column) => columns[column](one)).join(' | ')} |`,
  );
  return [
    '## Compared models',
    '',
    'Each model in the table is a policy and a reader of hidden states. A server that offers it can also be a judge. vLLM samples from it, with LoRA of its text layers, if vLLM supports the model. Adapters and merged models are exported.',
    '',
    'Tests compare a small random model of each row with transformers and peft in float32, with padding and answers of one token. The tests write these figures. A number is the largest difference, relative to the largest value. No number means that the quantity was not compared.',
    '',
    `| model | ${names.join(' | ')} |`,
    `| --- | ${names.map(() => '---').join(' | ')} |`,
    ...rows,
    '',
    `Other types: ${others.join(', ')}. They share the code of a compared model or are compared with stored logits only.`,
    '',
  ];
}
