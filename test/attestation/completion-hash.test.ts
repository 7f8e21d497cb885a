import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { stripProofMembers, stripUnsetMembers } from '#attestation/completion-hash.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { hashCompletion } from '#attestation/record-hash.ts'

const request: JsonObject = {
  model: 'demo/echo',
  messages: [{ role: 'user', content: 'Grüße ☃' }],
  temperature: 0.1,
  extra: { nested: null },
}
const response: JsonObject = {
  id: 'c1',
  choices: [],
  created: 1,
  model: 'demo/echo',
  object: 'chat.completion',
}

it('hashCompletion gives SHA-256 over both hashes, each over canonical JSON', () => {
  const requestDigest = createHash('sha256')
    .update(String(canonicalize(request)))
    .digest()
  const responseDigest = createHash('sha256')
    .update(String(canonicalize(response)))
    .digest()
  expect(hashCompletion({ request, response })).toEqual({
    requestHash: requestDigest.toString('hex'),
    responseHash: responseDigest.toString('hex'),
    hash: createHash('sha256').update(requestDigest).update(responseDigest).digest('hex'),
    canonicalRequest: canonicalize(request),
    canonicalResponse: canonicalize(response),
  })
})

it('the hash differs for a null below the top level and for every other change', () => {
  const { hash } = hashCompletion({ request, response })
  const changes: readonly JsonObject[] = [
    { ...request, extra: {} },
    { ...request, temperature: 0.2 },
    { ...request, messages: [{ role: 'user', content: 'Grüße' }] },
    { ...request, messages: [{ role: 'user', content: 'Grüße ☃' }, {}] },
  ]
  for (const changed of changes)
    expect(hashCompletion({ request: changed, response }).hash).not.toBe(hash)
  expect(hashCompletion({ request: response, response: request }).hash).not.toBe(hash)
})

it('stripUnsetMembers leaves out null only at the top level and at the top level of messages', () => {
  const given = parse(
    '{"a":null,"b":{"c":null},"d":[null],"messages":[{"e":null,"f":{"g":null}},null,[null],"x"]}',
  )
  const stripped = parse(
    '{"b":{"c":null},"d":[null],"messages":[{"f":{"g":null}},null,[null],"x"]}',
  )
  expect(stripUnsetMembers(given)).toEqual(stripped)
})

it('stripUnsetMembers leaves out messages that are null and keeps messages that are no array', () => {
  expect(stripUnsetMembers({ messages: null, model: 'm' })).toEqual({ model: 'm' })
  expect(stripUnsetMembers({ messages: { role: null } })).toEqual({ messages: { role: null } })
})

it('stripUnsetMembers keeps __proto__ as a member', () => {
  const stripped = stripUnsetMembers(
    parse('{"__proto__":{"a":1},"b":null,"messages":[{"__proto__":1,"c":null}]}'),
  )
  expect(JSON.stringify(stripped)).toBe('{"__proto__":{"a":1},"messages":[{"__proto__":1}]}')
})

it('stripProofMembers leaves out the proof members at the top level and nothing else', () => {
  const given = { ...response, hash: 'x', receipt: {}, log: {}, nested: { hash: 'y' }, hashes: 1 }
  expect(stripProofMembers(given)).toEqual({ ...response, nested: { hash: 'y' }, hashes: 1 })
  expect(stripProofMembers(response)).toBe(response)
})

function parse(text: string): JsonObject {
  return parseStrictJson(encodeUtf8(text)) as JsonObject
}
