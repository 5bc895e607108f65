/**
 * Checks the prose of the documentation, and of help texts, key descriptions and error messages in the source: sentence length, semicolons and
 * phrases that the project avoids. It is a floor and not a goal.
 *
 *   npm run check:prose                       the documentation
 *   node dist/scripts/check_prose.js source   strings of the source
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';

const LONGEST_MEAN = 18;
const LONGEST = 40;

const PHRASES: readonly RegExp[] = [
  /;/,
  /\b(?:nobody|anew|elsewhere|besides|farewell|hopeless|manners)\b/i,
  /\b(?:that|those) of\b|\bthose (?:that|who)\b|\bthe (?:former|latter)\b/i,
  /\bwhat (?:is|are|was|were|it|they|this|that|the|a|an|of)\b/i,
  /\b(?:is|are|was|were|be|been|being) (?:told|fed|taught|held against|looked at|asked for)\b/i,
  /\b(?:stands?|lies?|lay) (?:in|at|on|there|beside|behind|before)\b/i,
  /\bpictures?\b/i,
  /\b\w*(?:colour|behaviour|favour|honour|neighbour|labelled|labelling|modell(?:ed|ing)|cancelled|learnt|licence|centre|grey)\w*\b/i,
  /\b\w*(?:normal|real|initial|optim|recogn|summar|serial|organ|util)is(?:e[sd]?|ing|ation)\b/i,
];

interface Text {
  readonly where: string;
  /** Full sentences, whose mean length counts, and short pieces: cells of tables and headings. */
  readonly sentences: readonly string[];
  readonly pieces?: readonly string[];
}

function filesIn(folder: string, ending: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name));
}

/** Sentences of a text. Code counts as one word, and a colon before a line break or an item ends a sentence. */
function sentencesOf(text: string): string[] {
  return text
    .split(/(?<=[.!?][)"'*_]*)\s+|:\s*\n|\n{2,}/)
    .map((sentence) => sentence.replaceAll(/\s+/g, ' ').trim())
    .filter((sentence) => wordsIn(sentence) > 1);
}

const wordsIn = (sentence: string): number => sentence.split(/\s+/).filter((word) => /\w/.test(word)).length;

/** The prose of a page, without code, HTML and addresses. */
function proseOf(where: string): Text {
  const text = readFileSync(where, 'utf8')
    .replaceAll(/^```[\s\S]*?^```/gm, '\n')
    .replaceAll(/<[^>]+>/g, '')
    .replaceAll(/`[^`\n]+`/g, 'code')
    .replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/^\s*(?:[-*]|\d+\.) /gm, '\n\n');
  const isPiece = /^(?:#|\|).*$/gm;
  const pieces = [...text.matchAll(isPiece)].flatMap(([row]) => row.split('|'));
  return { where, sentences: sentencesOf(text.replaceAll(isPiece, '')), pieces: pieces.flatMap(sentencesOf) };
}

const SPOKEN = new Set(['description', 'describe', 'summary', 'next', 'allowed', 'why', 'epilogue', 'usage']);

/** Functions whose arguments people read: descriptions of keys and flags, problems of a config, and printed lines. */
const SPEAKING = new Set(['result', 'operation', 'section', 'describe', 'problem', 'printError', 'printSentence']);

/** Strings that people read: arguments of errors and of the functions above, and values of the fields above. Inserted values count as one word. */
function spokenIn(file: string): string[] {
  const source = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest, true);
  const found: string[] = [];
  const collect = (node: ts.Node): void => {
    if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) found.push(node.text);
    else if (ts.isTemplateExpression(node)) {
      found.push(node.head.text + node.templateSpans.map(({ literal }) => `x${literal.text}`).join(''));
    } else if (ts.isConditionalExpression(node) || ts.isParenthesizedExpression(node)) ts.forEachChild(node, collect);
  };
  const visit = (node: ts.Node): void => {
    const isSpoken = ts.isPropertyAssignment(node) && ts.isIdentifier(node.name) && SPOKEN.has(node.name.text);
    if (isSpoken) collect(node.initializer);
    if (ts.isNewExpression(node) && /Error$/.test(node.expression.getText(source))) node.arguments?.forEach(collect);
    if (ts.isCallExpression(node)) {
      const { expression } = node;
      const name = ts.isPropertyAccessExpression(expression) ? expression.name : expression;
      if (ts.isIdentifier(name) && SPEAKING.has(name.text)) node.arguments.forEach(collect);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  // Messages and labels are no prose: a semicolon ends one of their parts. Quoted names are code.
  return found
    .filter((text) => / .* /.test(text))
    .map((text) =>
      text.replaceAll('; ', '. ').replaceAll(/'Picture 1: '|'[^' ]*'|\b\w+(?:[._]\w+)+\b|--[\w-]+/g, 'code'),
    );
}

function textsOf(group: string): Text[] {
  if (group === 'source') {
    return filesIn('src', '.ts').map((where) => ({ where, sentences: spokenIn(where).flatMap(sentencesOf) }));
  }
  const generated = new Set(['docs/reference/keys.md', 'docs/reference/coverage.md', 'docs/reference/cli.md']);
  const pages = [
    'README.md',
    'CONTRIBUTING.md',
    'AGENTS.md',
    'SECURITY.md',
    ...filesIn('docs', '.md'),
    ...filesIn('experiments/results', '.md'),
  ];
  return pages.filter((page) => !generated.has(page)).map(proseOf);
}

let failed = false;
for (const group of process.argv.slice(2)) {
  const texts = textsOf(group);
  const lengths = texts.flatMap(({ sentences }) => sentences.map(wordsIn));
  const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
  const faults = texts.flatMap(({ where, sentences, pieces = [] }) =>
    [...sentences, ...pieces].flatMap((sentence) => {
      const phrase = PHRASES.map((pattern) => pattern.exec(sentence)?.[0]).find((match) => match !== undefined);
      const length = wordsIn(sentence);
      const why = [...(length > LONGEST ? [`${length} words`] : []), ...(phrase === undefined ? [] : [`'${phrase}'`])];
      return why.length === 0 ? [] : [`${where}: ${why.join(', ')}: ${sentence}`];
    }),
  );
  for (const fault of faults) console.error(fault);
  console.error(`${group}: ${lengths.length} sentences, ${mean.toFixed(1)} words on average, ${faults.length} faults`);
  failed ||= faults.length > 0 || mean > LONGEST_MEAN;
}
if (failed) process.exitCode = 1;
