import { describe, expect, it } from 'vitest'
import { DemoError } from '#src/local/demo/request.ts'
import { exampleOf } from '#src/local/demo/schema-example.ts'

describe('exampleOf', () => {
  it.each<[unknown, Record<string, unknown>]>([
    [{}, {}],
    [null, { const: null }],
    ['b', { enum: ['b', 'c'] }],
    ['demonstration', { type: 'string' }],
    ['demonstration..', { type: 'string', minLength: 15 }],
    ['2000-01-01', { type: 'string', format: 'date' }],
    [3, { type: 'integer', minimum: 3 }],
    [-2, { type: 'integer', maximum: -2 }],
    [9, { type: 'integer', minimum: 7, multipleOf: 3 }],
    [0.25, { type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 0.5 }],
    [[0, 0], { type: 'array', items: { type: 'integer' }, minItems: 2 }],
    [
      [0, true],
      { prefixItems: [{ type: 'integer' }, { type: 'boolean' }], minItems: 2, type: 'array' },
    ],
    [{ a: 0 }, { type: 'object', properties: { a: { type: 'integer' }, b: {} }, required: ['a'] }],
    [true, { anyOf: [{ $ref: '#/$defs/none' }, { type: 'boolean' }] }],
    [
      { a: 0, b: true },
      {
        allOf: [
          { properties: { a: { type: 'integer' } }, required: ['a'] },
          { properties: { b: { type: 'boolean' } }, required: ['b'] },
        ],
      },
    ],
    [
      { value: 0, next: null },
      {
        $ref: '#/$defs/node',
        $defs: {
          node: {
            type: 'object',
            properties: {
              value: { type: 'integer' },
              next: { anyOf: [{ type: 'null' }, { $ref: '#/$defs/node' }] },
            },
            required: ['value', 'next'],
          },
        },
      },
    ],
  ])('exampleOf gives %j for %j', (example, schema) => {
    expect(exampleOf(schema)).toEqual(example)
  })

  it.each<[string, Record<string, unknown>]>([
    ['that needs itself', { type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }],
    [
      'that branches without end',
      {
        type: 'object',
        properties: { a: { $ref: '#' }, b: { $ref: '#' } },
        required: ['a', 'b'],
      },
    ],
    ['of too many items', { type: 'array', minItems: 1e9 }],
    ['of a text too long', { type: 'string', minLength: 1e9 }],
    ['without a number between its bounds', { type: 'integer', minimum: 2, maximum: 1 }],
    ['with an empty enum', { enum: [] }],
  ])('exampleOf refuses a schema %s', (_, schema) => {
    expect(() => exampleOf(schema)).toThrow(DemoError)
  })
})
