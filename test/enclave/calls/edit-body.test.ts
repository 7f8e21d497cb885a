import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Json } from '#attestation/json/value.ts'
import { removeMember, setIncludeUsage } from '#enclave/calls/edit-body.ts'

function set(body: string): string {
  const { stream_options: options = null } = JSON.parse(body) as { readonly stream_options?: Json }
  return Buffer.from(setIncludeUsage(Buffer.from(body), options)).toString('utf8')
}

describe('setIncludeUsage', () => {
  const USAGE = '"stream_options":{"include_usage":true}'
  it.each([
    ['null', '{"a":1,"stream_options":null,"b":[1.0]}', `{"a":1,${USAGE},"b":[1.0]}`],
    ['false', '{"stream_options":{"include_usage":false}}', `{${USAGE}}`],
    [
      'other options',
      '{"stream_options":{"x":[{}],"include_usage":false},"b":1e2}',
      '{"stream_options":{"x":[{}],"include_usage":true},"b":1e2}',
    ],
    [
      'escaped in its name',
      '{"stream\\u005foptions":null}',
      '{"stream\\u005foptions":{"include_usage":true}}',
    ],
    [
      'last, before white space',
      '{"b":1,"stream_options" : {} }',
      '{"b":1,"stream_options" :{"include_usage":true}}',
    ],
    ['no object', '{"stream_options":"x","b":1}', `{${USAGE},"b":1}`],
  ])('setIncludeUsage replaces options that are %s in their place', (_, body, expected) => {
    expect(set(body)).toBe(expected)
  })

  it('setIncludeUsage is not misled by the name in a nested object, a value, or a string with quotes', () => {
    const body =
      '{"a":{"stream_options":{}},"b":"stream_options","c":"\\"stream_options\\":{},","d":["stream_options"]}'
    expect(set(body)).toBe(`${body.slice(0, -1)},"stream_options":{"include_usage":true}}`)
  })

  it('setIncludeUsage changes include_usage alone, in any object and any layout', () => {
    const options = fc.oneof(fc.constant(null), fc.dictionary(fc.string(), fc.jsonValue()))
    const rest = fc.dictionary(fc.string(), fc.jsonValue(), { minKeys: 1 })
    fc.assert(
      fc.property(
        rest,
        fc.option(options, { nil: undefined }),
        fc.constantFrom(0, 1, '\t'),
        (members, value, space) => {
          const object = {
            ...members,
            ...(value === undefined ? {} : { stream_options: value }),
            model: 'm',
          }
          const after = JSON.parse(set(JSON.stringify(object, null, space)))
          expect(after).toEqual(
            JSON.parse(
              JSON.stringify({ ...object, stream_options: { ...value, include_usage: true } }),
            ),
          )
        },
      ),
      { numRuns: 100 },
    )
  })
})

describe('removeMember', () => {
  const remove = (body: string) =>
    Buffer.from(removeMember(Buffer.from(body), 'affidavit')).toString('utf8')

  it.each([
    ['first', '{ "affidavit" : {"nonce":"ab"} , "a": 1.0}', '{  "a": 1.0}'],
    ['in the middle', '{"a":1.0,"affidavit":[{}],"b":"é"}', '{"a":1.0,"b":"é"}'],
    ['last', '{"a":1.0 ,"affidavit":null }\n', '{"a":1.0 }\n'],
    ['alone', '{"affidavit":1}', '{}'],
    ['escaped in its name', '{"a":1,"affidavi\\u0074":{"nonce":"}"}}', '{"a":1}'],
  ])('removeMember takes out the member that stands %s, and no other byte', (_, body, expected) => {
    expect(remove(body)).toBe(expected)
  })

  it('removeMember leaves every other member as it was, in any object and any layout', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string(), fc.jsonValue()),
        fc.dictionary(fc.string(), fc.jsonValue()),
        fc.jsonValue(),
        fc.constantFrom(0, 1, '\t'),
        (before, after, value, space) => {
          const { affidavit: _, ...rest } = { ...before, ...after }
          const body = JSON.stringify({ ...before, affidavit: value, ...after }, null, space)
          expect(JSON.parse(remove(body))).toEqual(JSON.parse(JSON.stringify(rest)))
        },
      ),
      { numRuns: 100 },
    )
  })
})
