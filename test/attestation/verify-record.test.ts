import { readFileSync } from 'node:fs'
import canonicalize from 'canonicalize'
import { Wallet } from 'ethers'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { addressOf, completionDigest } from '#attestation/account.ts'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { PROOF_MEMBERS, stripUnsetMembers } from '#attestation/completion-hash.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { hashReceipt } from '#attestation/log-proof.ts'
import { parseLogProof } from '#attestation/log-proof-form.ts'
import { parseReceipt } from '#attestation/receipt.ts'
import { hashCompletion } from '#attestation/record-hash.ts'
import { treeHeadDigest } from '#attestation/tree-head.ts'
import {
  type RecordCheckName,
  type RecordReport,
  verifyRecord,
} from '#attestation/verify-record.ts'
import { buildDocument } from '../support/nitro-builder/document-builder.ts'
import { buildRecord, RESPONSE } from './build-record.ts'
import { type JsonPath, mutatedAt, removeAt, replaceAt, valueAt } from './mutate-json.ts'

const { request, stored, created } = buildRecord()
const EVERY_CHECK: readonly RecordCheckName[] = [
  'request hash',
  'response hash',
  'stream hash',
  'hash',
  'public key',
  'signature',
  'receipt',
  'created_at',
  'attestation key',
  'receipt in log',
  'tree head',
  'anchor',
]

it('a stored record passes every check but stream hash and anchor, which are not made', () => {
  const report = verifyRecord(stored)
  expect(report.ok).toBe(true)
  expect(report.checks.map(({ name }) => name)).toEqual(EVERY_CHECK)
  const notMade = ['stream hash', 'anchor']
  expect(namesOf(report, 'passed')).toEqual(EVERY_CHECK.filter((name) => !notMade.includes(name)))
  expect(namesOf(report, 'not checked')).toEqual(notMade)
})

it('the verdict on the published vector comes by every published value', () => {
  const record = readVector('stored') as JsonObject
  const { request, response } = record as { request: JsonObject; response: JsonObject }
  const { requestHash, responseHash, hash } = hashCompletion({ request, response })
  const log = parseLogProof(record.log ?? null)
  const domain = { chainId: log.chain_id, contract: log.contract }
  expect({
    request_hash: requestHash,
    response_hash: responseHash,
    hash,
    completion_digest: encodeHex(completionDigest(decodeHex(hash))),
    notary: addressOf(decodeHex(String(record.public_key))),
    leaf: encodeHex(hashReceipt(parseReceipt(record.receipt ?? null))),
    tree_head_digest: encodeHex(
      treeHeadDigest(domain, { size: log.size, root: decodeHex(log.root) }),
    ),
  }).toEqual(removeAt(readVector('values'), ['source']))
})

it('a completion whose response names no model and a completion over plain http pass', () => {
  const { model: _, ...response } = RESPONSE
  const provider = { name: 'local', origin: 'http://127.0.0.1:8000', tls: null }
  expect(verifyRecord(buildRecord({ response, receipt: { provider } }).stored).ok).toBe(true)
  expect(verifyRecord(buildRecord({ response: { ...response, model: 7 } }).stored).ok).toBe(true)
})

const { request: _, response: __, ...bound } = stored
const bare = { ...bound, request: null, response: null, redacted: true, usage: null }
const erased = { at: 1_795_000_000, by: 'operator', reason: 'asked for' }

it.each<[string, JsonObject]>([
  ['it erased', { erased }],
  ['it erased by a rule', { erased: { ...erased, by: 'retention', reason: 'kept for 30 days' } }],
  ['it cannot decrypt', { withheld: { code: 'content_key_missing', message: 'm' } }],
])(
  'verifyRecord checks what the hashes allow of a record whose content the gateway says %s',
  (_, why) => {
    const report = verifyRecord({ ...bare, ...why })
    expect(report.ok).toBe(true)
    expect(namesOf(report, 'not checked')).toEqual([
      'request hash',
      'response hash',
      'stream hash',
      'anchor',
    ])
    const forged = verifyRecord({ ...bare, ...why, hash: 'ab'.repeat(32) })
    expect(namesOf(forged, 'failed')).toContain('hash')
  },
)

it('content that the caller kept is checked in the place of the missing content', () => {
  const { request, response } = stored
  const report = verifyRecord({ ...bare, erased, request, response } as JsonObject)
  expect(namesOf(report, 'not checked')).toEqual(['stream hash', 'anchor'])
  const other = { ...bare, erased, response, request: { model: 'other' } } as JsonObject
  expect(namesOf(verifyRecord(other), 'failed')).toContain('request hash')
})

it.each<[string, JsonObject]>([
  ['nothing says why', {}],
  ['the reason is malformed', { erased: true }],
  ['it is not said to be redacted', { erased, redacted: false }],
  ['the reason is unknown', { withheld: { code: 'because', message: 'm' } }],
])('a record without its content fails when %s', (_, why) => {
  expect(namesOf(verifyRecord({ ...bare, ...why }), 'failed')).toContain('request hash')
})

const encrypted = buildRecord({ receipt: { encrypted: true } })
const redacted: JsonObject = {
  ...encrypted.stored,
  request: null,
  response: null,
  redacted: true,
  usage: null,
}

it.each<[string, JsonObject]>([
  ['its receipt says that it was not encrypted', { receipt: stored.receipt ?? null }],
  ['it does not say that it is redacted', { redacted: false }],
  ['its parts are not there at all', { request: {}, response: [] }],
])('the record of an encrypted call fails when %s', (_, changes) => {
  expect(namesOf(verifyRecord({ ...redacted, ...changes }), 'failed')).toContain('request hash')
  expect(namesOf(verifyRecord({ ...redacted, ...changes }), 'failed')).toContain('response hash')
})

it('a receipt of other hashes fails: it is not the leaf, and the signature is over other hashes', () => {
  const receipt = { ...(redacted.receipt as JsonObject), request_hash: 'ab'.repeat(32) }
  expect(namesOf(verifyRecord({ ...redacted, receipt }), 'failed')).toEqual([
    'hash',
    'signature',
    'receipt',
    'receipt in log',
  ])
})

it('a stored record with any change in what is bound fails', () => {
  const bound = ['request', 'response', 'hash', 'public_key', 'signature', 'receipt', 'log']
  fc.assert(
    fc.property(
      fc.constantFrom(...bound).chain((root) => mutatedAt(stored, [root])),
      (changed) => {
        fc.pre(isDifferent(stored, changed))
        expect(verifyRecord(changed).ok).toBe(false)
      },
    ),
    { numRuns: 150 },
  )
})

it('a create response or its request with a change fails, but for members that nothing binds', () => {
  const unbound = ['tx_hash', 'attestation', 'receipt']
  const roots: readonly JsonPath[] = Object.keys(created)
    .filter((name) => !unbound.includes(name))
    .map((name) => [name])
    .concat(['hash', 'request_hash', 'response_hash', 'model'].map((name) => ['receipt', name]))
  fc.assert(
    fc.property(
      fc.constantFrom(...roots).chain((root) => mutatedAt(created, root)),
      (changed) => {
        fc.pre(isDifferent(created, changed))
        expect(verifyRecord(changed, { request }).ok).toBe(false)
      },
    ),
    { numRuns: 50 },
  )
  fc.assert(
    fc.property(mutatedAt(request, []), (changed) => {
      fc.pre(isDifferentRequest(request, changed))
      expect(verifyRecord(created, { request: changed }).ok).toBe(false)
    }),
    { numRuns: 40 },
  )
})

it('a record fails without any one of the members that it needs', () => {
  for (const name of [
    'request',
    'response',
    'hash',
    'public_key',
    'signature',
    'receipt',
    'attestation',
    'created_at',
  ])
    expect(verifyRecord(removeAt(stored, [name])).ok).toBe(false)
})

it.each(PROOF_MEMBERS)(
  'a stored response with a member called %s, which would not be hashed, fails',
  (name) => {
    const changed = replaceAt(stored, ['response'], { ...RESPONSE, [name]: 'x' })
    expect(namesOf(verifyRecord(changed), 'failed')).toEqual(['response hash'])
  },
)

it.each([
  ['0x before the hash', ['hash'], (text: string) => `0x${text}`],
  ['the hash in upper case', ['hash'], (text: string) => text.toUpperCase()],
  [
    'the public key in upper case',
    ['public_key'],
    (text: string) => `0x${text.slice(2).toUpperCase()}`,
  ],
  ['the signature without 0x', ['signature'], (text: string) => text.slice(2)],
  ['a line end after the signature', ['signature'], (text: string) => `${text}\n`],
])('every value has one form, and another form fails: %s', (_, path, change) => {
  const changed = replaceAt(stored, path, change(String(valueAt(stored, path))))
  expect(verifyRecord(changed).ok).toBe(false)
})

it('a record fails with an attestation document of another key, of no key or of no form', () => {
  const otherKey = buildDocument({ fields: { public_key: Buffer.alloc(65, 4) } })
  const noKey = buildDocument({ fields: { public_key: null } })
  for (const attestation of [
    Buffer.from(otherKey).toString('base64'),
    Buffer.from(noKey).toString('base64'),
    'AAAA',
    '',
    '%',
    null,
    7,
  ])
    expect(namesOf(verifyRecord({ ...stored, attestation }), 'failed')).toEqual(['attestation key'])
})

it('verifyRecord reports on any JSON value and never throws', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.option(fc.jsonValue(), { nil: undefined }), (value, given) => {
      const options = given === undefined ? {} : { request: given as Json }
      expect(verifyRecord(value as Json, options).ok).toBe(false)
    }),
  )
})

it('verifyRecord reports and never throws when a decoder of documents or a value is hostile', () => {
  const throwing = {
    decodeAttestation: () => {
      throw 'not an Error'
    },
  }
  expect(namesOf(verifyRecord(stored, throwing), 'failed')).toEqual(['attestation key'])
  let deep: Json = []
  for (let level = 0; level < 100_000; level++) deep = [deep]
  expect(verifyRecord(replaceAt(stored, ['request', 'seed'], deep)).ok).toBe(false)
  expect(verifyRecord(replaceAt(stored, ['response', 'id'], '\ud800')).ok).toBe(false)
})

it('a create response does not pass as a stored record, and a stored record not as a create response', () => {
  expect(verifyRecord(created).ok).toBe(false)
  expect(verifyRecord(stored, { request }).ok).toBe(false)
})

it('verifyRecord does not detect null members added to or left out of the request, which mean unset', () => {
  const added = replaceAt(stored, ['request'], { ...request, user: null, added: null })
  const inMessage = replaceAt(stored, ['request', 'messages', 0], {
    role: 'system',
    content: 'Answer in one word.',
    name: null,
  })
  for (const changed of [added, inMessage, replaceAt(stored, ['request'], request)])
    expect(verifyRecord(changed).ok).toBe(true)
})

it('verifyRecord does not detect members in another order or -0 for 0', () => {
  const reversed = Object.fromEntries(Object.entries(stored).reverse())
  expect(verifyRecord(reversed).ok).toBe(true)
  expect(verifyRecord(replaceAt(stored, ['response', 'choices', 0, 'index'], -0)).ok).toBe(true)
})

it('verifyRecord does not detect another id or tx_hash, or members that a record does not have', () => {
  expect(
    verifyRecord({ ...stored, id: 'x', tx_hash: `0x${'00'.repeat(32)}`, note: 'added' }).ok,
  ).toBe(true)
})

it('a changed receipt in a create response without log passes, and the report says what was not checked', () => {
  const forged = replaceAt(created, ['receipt', 'provider', 'origin'], 'https://other.example')
  const { log: _, ...withoutLog } = forged as JsonObject
  const report = verifyRecord(withoutLog, { request })
  expect(report.ok).toBe(true)
  expect(namesOf(report, 'not checked')).toEqual([
    'stream hash',
    'receipt',
    'created_at',
    'receipt in log',
    'tree head',
    'anchor',
  ])
  expect(report.checks.map(({ detail }) => detail).join()).not.toContain('provider demo')
  expect(namesOf(verifyRecord(forged, { request }), 'failed')).toEqual(['receipt in log'])
})

it('verifyRecord does not detect that a document with the right key has a forged signature', () => {
  const publicKey = Buffer.from(String(stored.public_key).slice(2), 'hex')
  const forged = buildDocument({
    fields: { public_key: publicKey },
    signature: new Uint8Array(96),
  })
  expect(verifyRecord({ ...stored, attestation: Buffer.from(forged).toString('base64') }).ok).toBe(
    true,
  )
})

function namesOf(report: RecordReport, outcome: string): readonly RecordCheckName[] {
  return report.checks.filter((check) => check.outcome === outcome).map(({ name }) => name)
}

it('a given recover function recovers both signers, and verifyRecord believes what it gives', () => {
  const publicKey = decodeHex(String(stored.public_key))
  const recovered: string[] = []
  const recover = (point: Uint8Array) => (signed: { readonly digest: Uint8Array }) => {
    recovered.push(encodeHex(signed.digest))
    return point
  }
  expect(verifyRecord(stored, { recover: recover(publicKey) }).ok).toBe(true)
  expect(recovered).toHaveLength(2)
  const other = decodeHex(Wallet.createRandom().signingKey.publicKey)
  const failed = verifyRecord(stored, { recover: recover(other) }).checks.filter(
    ({ outcome }) => outcome === 'failed',
  )
  expect(failed.map(({ name }) => name)).toEqual(['signature', 'tree head'])
})

/** Whether a change is one that must be seen: not of null members of the request. */
function isDifferent(before: JsonObject, changed: Json): boolean {
  const after = changed as JsonObject
  return canonicalize(withoutUnset(before)) !== canonicalize(withoutUnset(after))
}

function isDifferentRequest(before: JsonObject, changed: Json): boolean {
  return canonicalize(unsetStripped(before)) !== canonicalize(unsetStripped(changed))
}

function withoutUnset(record: JsonObject): JsonObject {
  return record.request === undefined
    ? record
    : { ...record, request: unsetStripped(record.request) }
}

function unsetStripped(value: Json): Json {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
  return isObject ? stripUnsetMembers(value as JsonObject) : value
}

function readVector(name: string): Json {
  const path = new URL(`../vectors/records/${name}.json`, import.meta.url)
  return parseExactJson(new Uint8Array(readFileSync(path)))
}
