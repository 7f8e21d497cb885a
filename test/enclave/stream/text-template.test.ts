import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { NO_CHUNKS, normalizeChunk } from '#attestation/dialects/chat/normalize-chunk.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { makeWellFormed, parseUnsettled } from '#attestation/json/parse-lenient.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { makeTextTemplate, matchText } from '#enclave/stream/text-template.ts'

const TERMS = {
  usageAsked: false,
  choicesAsked: 2,
  fallback: { id: 'x', created: 1, model: 'm' },
}
const opened = normalizeChunk(TERMS, NO_CHUNKS, chunkOf({ role: 'assistant', content: 'a' })).state

/** What is given out for an event, as the stream's relay makes it without templates. */
function give(data: string): JsonObject | null {
  const { state, chunks } = normalizeChunk(TERMS, opened, parseUnsettled(data) as JsonObject)
  if (state.choices !== opened.choices) return null
  const [chunk, ...others] = chunks
  return chunk === undefined || others.length > 0 ? null : (makeWellFormed(chunk) as JsonObject)
}

function chunkOf(
  delta: JsonObject,
  more: JsonObject = {},
  choiceMore: JsonObject = {},
): JsonObject {
  const choice = { index: 0, delta, finish_reason: null, ...choiceMore }
  return { id: 'c', created: 2, model: 'm', choices: [choice], ...more }
}

const write = (delta: JsonObject, more: JsonObject = {}, choiceMore: JsonObject = {}) =>
  JSON.stringify(chunkOf(delta, more, choiceMore))

describe('a template', () => {
  it('a text template gives for every text what the whole way gives', () => {
    const template = makeTextTemplate(
      write({ content: 'Hello' }, { system_fingerprint: 'ü' }),
      give,
    )
    if (template === null) throw new Error('expected a template')
    const texts = fc.oneof(
      fc.string(),
      fc.string({ unit: 'binary' }),
      fc.string({ unit: 'grapheme' }),
    )
    let matched = 0
    fc.assert(
      fc.property(texts, (content) => {
        const data = write({ content }, { system_fingerprint: 'ü' })
        const match = matchText(template, data)
        if (match === null) return
        matched++
        const given = canonicalizeJson(give(data) ?? {})
        expect(match).toEqual({ text: content, padding: null, given })
      }),
      { numRuns: 200 },
    )
    expect(matched).toBeGreaterThan(40)
  })

  it('a text template takes padding beside the text, before it or after', () => {
    const padded = (content: string, obfuscation: string) => [
      write({ content }, { obfuscation }),
      JSON.stringify({ obfuscation, ...chunkOf({ content }) }),
    ]
    for (const [at, data] of padded('Hello', 'x').entries()) {
      const template = makeTextTemplate(data, give)
      if (template === null) throw new Error('expected a template')
      fc.assert(
        fc.property(fc.string({ minLength: 1 }), fc.string(), (content, padding) => {
          const next = padded(content, padding)[at] ?? ''
          const match = matchText(template, next)
          if (match === null) return
          const given = canonicalizeJson(give(next) ?? {})
          expect(match).toEqual({ text: content, padding, given })
        }),
      )
      expect(matchText(template, padded('"', '\\')[at] ?? '')).not.toBeNull()
    }
  })

  it.each([
    ['a control character', '{"a":"\u0001"}'],
    [
      'an escape that canonical JSON writes otherwise',
      write({ content: 'x' }).replace('"x"', '"\\u0041"'),
    ],
    ['the end of the text', write({ content: 'x' }).replace('"x"', '"x","y":"z"')],
    ['a backslash at the end', write({ content: 'x' }).replace('"x"', '"x\\"')],
    ['another member', write({ content: 'x' }, { extra: 1 })],
  ])('a text template does not match %s', (_, data) => {
    const template = makeTextTemplate(write({ content: 'Hello' }), give)
    if (template === null) throw new Error('expected a template')
    expect(matchText(template, data)).toBeNull()
  })

  it.each([
    ['that ends a choice', write({ content: 'x' }, {}, { finish_reason: 'stop' })],
    [
      'with log probabilities',
      write({ content: 'x' }, {}, { logprobs: { content: [{ token: 'x', logprob: 0 }] } }),
    ],
    ['of a choice that has not begun', write({ content: 'x' }, {}, { index: 1 })],
    ['with content elsewhere, too', write({ content: 'x' }, { content: 'x' })],
    [
      'whose content is not the member that is called so',
      '{"\\"content":"x","choices":[{"index":0,"delta":{"conten\\u0074":"x"},"finish_reason":null}]}',
    ],
    ['with the mark in it', write({ content: 'x' }, { note: 'text of a chunk' })],
  ])('a text template is not made of an event %s', (_, data) => {
    expect(makeTextTemplate(data, give)).toBeNull()
  })
})
