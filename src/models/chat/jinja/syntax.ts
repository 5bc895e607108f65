/**
 * The syntax of templates: `@huggingface/jinja` parses them. Its evaluation differs from that of Python's jinja2 (`strip('\n')` strips all white
 * space, 0 equals '', loops share what they set), so the tree is evaluated here.
 */
import * as jinja from '@huggingface/jinja';

export interface Operator {
  readonly value: string;
}

export interface Identifier {
  readonly type: 'Identifier';
  readonly value: string;
}

export interface Member {
  readonly type: 'MemberExpression';
  readonly object: Expression;
  readonly property: Expression;
  readonly computed: boolean;
}

export interface Call {
  readonly type: 'CallExpression';
  readonly callee: Expression;
  readonly args: readonly Argument[];
}

export interface Slice {
  readonly type: 'SliceExpression';
  readonly start?: Expression;
  readonly stop?: Expression;
  readonly step?: Expression;
}

export interface Binary {
  readonly type: 'BinaryExpression';
  readonly operator: Operator;
  readonly left: Expression;
  readonly right: Expression;
}

interface Keyword {
  readonly type: 'KeywordArgumentExpression';
  readonly key: Identifier;
  readonly value: Expression;
}

export type Argument =
  | Expression
  | Keyword
  | { readonly type: 'SpreadExpression'; readonly argument: Expression }
  | { readonly type: 'KeywordSpreadExpression'; readonly argument: Expression };

/** A parameter of a macro, with its default if it has one. */
export type Parameter = Identifier | Keyword;

interface Tuple {
  readonly type: 'TupleLiteral';
  readonly value: readonly Expression[];
}

export type Expression =
  | Identifier
  | Member
  | Call
  | Slice
  | Binary
  | Tuple
  | { readonly type: 'IntegerLiteral' | 'FloatLiteral'; readonly value: number }
  | { readonly type: 'StringLiteral'; readonly value: string }
  | { readonly type: 'ArrayLiteral'; readonly value: readonly Expression[] }
  | { readonly type: 'ObjectLiteral'; readonly value: ReadonlyMap<Expression, Expression> }
  | { readonly type: 'FilterExpression'; readonly operand: Expression; readonly filter: Identifier | Call }
  | {
      readonly type: 'TestExpression';
      readonly operand: Expression;
      readonly negate: boolean;
      readonly test: Identifier;
    }
  | { readonly type: 'UnaryExpression'; readonly operator: Operator; readonly argument: Expression }
  | { readonly type: 'SelectExpression'; readonly lhs: Expression; readonly test: Expression }
  | {
      readonly type: 'Ternary';
      readonly condition: Expression;
      readonly trueExpr: Expression;
      readonly falseExpr: Expression;
    };

export interface For {
  readonly type: 'For';
  readonly loopvar: Identifier | Tuple;
  readonly iterable: Expression;
  readonly body: readonly Statement[];
  readonly defaultBlock: readonly Statement[];
}

export interface SetStatement {
  readonly type: 'Set';
  readonly assignee: Expression;
  readonly value: Expression | null;
  readonly body: readonly Statement[];
}

export interface CallStatement {
  readonly type: 'CallStatement';
  readonly call: Call;
  readonly callerArgs: readonly Parameter[] | null;
  readonly body: readonly Statement[];
}

/** An expression that stands as a statement is printed; text is one. */
export type Statement =
  | Expression
  | For
  | SetStatement
  | CallStatement
  | {
      readonly type: 'If';
      readonly test: Expression;
      readonly body: readonly Statement[];
      readonly alternate: readonly Statement[];
    }
  | {
      readonly type: 'Macro';
      readonly name: Identifier;
      readonly args: readonly Parameter[];
      readonly body: readonly Statement[];
    }
  | { readonly type: 'FilterStatement'; readonly filter: Identifier | Call; readonly body: readonly Statement[] }
  | { readonly type: 'Break' | 'Continue' | 'Comment' };

/** The package's own types cannot be resolved from a module. */
const { parse, tokenize } = jinja as unknown as {
  readonly parse: (tokens: unknown) => { readonly body: readonly Statement[] };
  readonly tokenize: (
    source: string,
    options: { readonly trim_blocks: boolean; readonly lstrip_blocks: boolean },
  ) => unknown;
};

/** Parses as transformers configures jinja2: `trim_blocks`, `lstrip_blocks`. Throws what the parser throws. */
export function parseTemplate(source: string): readonly Statement[] {
  const lines = source.replace(/\r\n?/g, '\n');
  return parse(tokenize(lines, { trim_blocks: true, lstrip_blocks: true })).body;
}
