import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { fillAbsent } from '../../src/schema/absent.js';
import { operation, result, section } from '../../src/schema/mark.js';

/** A field whose default is one form, and whose absence means the form that there was before it. */
const form = result('The form.', z.enum(['strict', 'loose']).default('strict'), { absent: 'loose' });
const limit = operation('A limit.', z.int().nullable().default(1000), { absent: null });
const plain = result('Means its default where it is absent.', z.int().default(7));

/** What the record means to the schema. */
function read(schema: z.ZodType, record: object): unknown {
  return schema.parse(fillAbsent(schema, record));
}

describe('what is absent from a record', () => {
  it('means what the field says, and its default where it says nothing', () => {
    const schema = z.strictObject({ form, limit, plain });
    expect(read(schema, {})).toEqual({ form: 'loose', limit: null, plain: 7 });
    expect(schema.parse({})).toEqual({ form: 'strict', limit: 1000, plain: 7 });
  });

  it('is nothing that was written, null included', () => {
    const nullable = result('A choice.', z.string().nullable().default('new'), { absent: 'old' });
    const record = { form: 'strict', nullable: null };
    expect(fillAbsent(z.strictObject({ form, nullable }), record)).toEqual(record);
  });

  it('leaves the record as it is', () => {
    const record = Object.freeze({ inner: Object.freeze({}), list: Object.freeze([Object.freeze({})]) });
    const schema = z.strictObject({ inner: z.strictObject({ form }), list: z.array(z.strictObject({ form })) });
    expect(read(schema, record)).toEqual({ inner: { form: 'loose' }, list: [{ form: 'loose' }] });
    expect(record).toEqual({ inner: {}, list: [{}] });
  });

  it('is told from other fields of the record, and of the section, as they were written', () => {
    const weights = result('Weights.', z.enum(['current', 'average']).nullable().default(null), {
      absent: (record) => (typeof record('optimizer.ema_decay') === 'number' ? 'current' : undefined),
    });
    const doubled = result('Twice the size.', z.int().default(0), {
      absent: (_record, beside) => 2 * Number(beside('size')),
    });
    const schema = z.strictObject({
      optimizer: z.strictObject({ ema_decay: z.number().nullable().default(null) }),
      validation: z.strictObject({ weights }),
      layers: z.array(z.strictObject({ size: z.int(), doubled })),
    });
    expect(read(schema, { optimizer: { ema_decay: 0.9 }, validation: {}, layers: [{ size: 2 }, { size: 5 }] })).toEqual(
      {
        optimizer: { ema_decay: 0.9 },
        validation: { weights: 'current' },
        layers: [
          { size: 2, doubled: 4 },
          { size: 5, doubled: 10 },
        ],
      },
    );
    expect(read(schema, { optimizer: {}, validation: {}, layers: [] })).toMatchObject({
      validation: { weights: null },
    });
  });

  it('is filled in where a section, which is there by default, was not known at all', () => {
    const inner = z.strictObject({ form, plain });
    const schema = z.strictObject({
      empty: section('There by default.', inner.prefault({})),
      written: section('There with a value.', inner.prefault({ plain: 8 })),
      nullable: section('There unless it is null.', inner.nullable().prefault({})),
      around: section('The same, the other way round.', inner.prefault({}).nullable()),
      none: section('Not there by default.', inner.nullable().default(null)),
      off: section('There by default, and absent off.', inner.nullable().prefault({}), { absent: null }),
      deep: section('Holds another.', z.strictObject({ inner: inner.prefault({}) }).prefault({})),
    });
    expect(read(schema, {})).toEqual({
      empty: { form: 'loose', plain: 7 },
      written: { form: 'loose', plain: 8 },
      nullable: { form: 'loose', plain: 7 },
      around: { form: 'loose', plain: 7 },
      none: null,
      off: null,
      deep: { inner: { form: 'loose', plain: 7 } },
    });
  });

  it('is filled in for the variant of a union that the section is', () => {
    const a = z.strictObject({ type: result('Kind.', z.literal('a')), form });
    const b = z.strictObject({ type: result('Kind.', z.literal('b').default('b')), limit, plain });
    const schema = z.strictObject({
      terms: z.array(z.discriminatedUnion('type', [a, b])),
      either: z.union([z.literal('all'), a, z.strictObject({ tokens: z.string(), form })]),
      byDefault: z.discriminatedUnion('type', [a, b]).prefault({}),
    });
    expect(read(schema, { terms: [{ type: 'a' }, { type: 'b' }], either: { tokens: 'text' } })).toEqual({
      terms: [
        { type: 'a', form: 'loose' },
        { type: 'b', limit: null, plain: 7 },
      ],
      either: { tokens: 'text', form: 'loose' },
      byDefault: { type: 'b', limit: null, plain: 7 },
    });
    expect(read(schema, { terms: [], either: 'all', byDefault: { type: 'a' } })).toEqual({
      terms: [],
      either: 'all',
      byDefault: { type: 'a', form: 'loose' },
    });
  });

  it('hides nothing that is wrong with the record', () => {
    const schema = z.strictObject({
      either: z.union([z.strictObject({ form }), z.strictObject({ limit })]),
      inner: z.strictObject({ form }),
    });
    const wrong = fillAbsent(schema, { either: { wrong: 1 }, inner: 'text', more: 2 });
    expect(wrong).toEqual({ either: { wrong: 1 }, inner: 'text', more: 2 });
    expect(schema.safeParse(wrong).success).toBe(false);
  });
});
