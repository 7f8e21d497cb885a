import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { NOTARY, REQUEST, RESPONSE } from '../../attestation/build-record.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  documentFor,
  type EvidenceParts,
} from '../../attestation/evidence/build-evidence.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { PCR_VALUES } from '../../support/nitro-builder/document-builder.ts'
import { VECTORS } from '../manifest.ts'
import {
  type Content,
  consistent,
  type Draft,
  type DraftDemands,
  EXPECTED_OF_RECORD,
  invalid,
} from './draft.ts'
import { foreignKey, malleated, offCurve, STRANGER } from './signatures.ts'

/** A stored record (interface 2.4) whose document was in force; `parts` change it. */
export function storedOf(parts: EvidenceParts = {}): JsonObject {
  const { record } = buildEvidence(parts).bundle
  return { id: '0198c0de-0000-7000-8000-000000000001', ...record } as unknown as JsonObject
}

/** The answer (interface 2.3) of a stored record. */
export function answerOf(stored: JsonObject): JsonObject {
  const { id: _, request: __, response, created_at: ___, ...proof } = stored
  return { ...(response as JsonObject), ...proof }
}

/** Checks that a record never has: of a whole record, and of an answer that is not a stream. */
const OF_RECORD = ['stream hash', 'anchor']
const OF_ANSWER = [...OF_RECORD, 'created_at']

const record = storedOf()
const receipt = record.receipt as JsonObject
const log = record.log as JsonObject

function draft(
  name: string,
  source: Json | Content,
  { about, expect }: Pick<Draft, 'about' | 'expect'>,
  demands: DraftDemands = EXPECTED_OF_RECORD,
): Draft {
  const content = isContent(source) ? source : { json: source }
  return { name: `record/${name}`, about, kind: 'record', source: content, demands, expect }
}

function isContent(source: Json | Content): source is Content {
  return typeof source === 'object' && source !== null && ('path' in source || 'bytes' in source)
}

function fails(
  name: string,
  source: Json,
  { about, failed }: { readonly about: string; readonly failed: readonly string[] },
  demands: DraftDemands = EXPECTED_OF_RECORD,
): Draft {
  return draft(name, source, { about, expect: invalid(failed, ...OF_RECORD) }, demands)
}

/** The gateway's form of an encrypted call: without the content, which only the caller has. */
function redactedOf(whole: JsonObject): JsonObject {
  return { ...whole, request: null, response: null, redacted: true, usage: null }
}

const ofEncrypted = storedOf({ record: { receipt: { encrypted: true } } })

const badKey = offCurve(String(record.public_key))
const zeros = new Map([...PCR_VALUES, ...[0, 1, 2].map((at) => [at, new Uint8Array(48)] as const)])
const late = MADE_AT.getTime() + 2 * 3600_000 + 1

const NONCE = '0123456789abcdef'.repeat(2)
const OPERATORS = { ...REQUEST, affidavit: { nonce: NONCE, credential: 'operator' } }
const CALLERS = { ...REQUEST, affidavit: { nonce: NONCE, credential: { sha256: 'ab'.repeat(32) } } }
const NONCELESS = { ...REQUEST, affidavit: { credential: 'operator' } }
const UNKNOWN = { ...REQUEST, affidavit: { nonce: NONCE, credential: 'operator', account: 'x' } }

const stored: readonly Draft[] = [
  draft('whole', record, {
    about: 'A stored record: what the cases that fail are changed from.',
    expect: consistent(...OF_RECORD),
  }),
  draft('version-1', storedOf({ record: { version: 1 } }), {
    about: 'A receipt of version 1.',
    expect: consistent(...OF_RECORD),
  }),
  draft('version-2', storedOf({ record: { version: 2 } }), {
    about: 'A receipt of version 2.',
    expect: consistent(...OF_RECORD),
  }),
  draft(
    'nothing-expected-of-version-3',
    { path: 'records/third/stored.json' },
    {
      about:
        "A published record of version 3, whose request demands the caller's credential; nothing is expected of its document.",
      expect: consistent(...OF_RECORD, 'attestation'),
    },
    {},
  ),
  draft('credential/operators-as-demanded', storedOf({ record: { request: OPERATORS } }), {
    about: "The request demands that the provider is shown no caller's credential.",
    expect: consistent(...OF_RECORD),
  }),
  draft('credential/callers-as-demanded', storedOf({ record: { request: CALLERS } }), {
    about: "The request demands a caller's credential, which the receipt says was shown.",
    expect: consistent(...OF_RECORD),
  }),
  draft(
    'credential/none-as-demanded',
    storedOf({
      record: { request: OPERATORS, receipt: { credential: { from: 'none', demanded: true } } },
    }),
    {
      about: 'The operator has no credential for the provider.',
      expect: consistent(...OF_RECORD),
    },
  ),
  draft(
    'credential/callers-without-demand',
    storedOf({ record: { receipt: { credential: { from: 'caller', demanded: false } } } }),
    {
      about: 'Without a demand, any credential in the receipt is accepted.',
      expect: consistent(...OF_RECORD),
    },
  ),
  ...(
    [
      ['operators-for-callers', CALLERS, 'operator', true, "the caller's was demanded"],
      ['none-for-callers', CALLERS, 'none', true, "the caller's was demanded"],
      ['callers-for-operators', OPERATORS, 'caller', true, "no caller's was demanded"],
      ['not-said-to-be-demanded', OPERATORS, 'operator', false, 'the receipt denies the demand'],
      ['said-to-be-demanded', REQUEST, 'operator', true, 'nothing was demanded'],
      ['without-nonce', NONCELESS, 'operator', true, 'a demand without a nonce means nothing'],
      ['unknown-demand', UNKNOWN, 'operator', true, 'what is demanded is unknown'],
    ] as const
  ).map(([name, request, from, demanded, why]) =>
    fails(
      `credential/${name}`,
      storedOf({ record: { request, receipt: { credential: { from, demanded } } } }),
      {
        about: `The provider was shown another credential than was demanded: ${why}.`,
        failed: ['receipt'],
      },
    ),
  ),
  draft(
    'nothing-expected',
    { path: 'records/second/stored.json' },
    {
      about: 'A published record of version 2; nothing is expected of its document.',
      expect: consistent(...OF_RECORD, 'attestation'),
    },
    {},
  ),
  draft(
    'nothing-expected-of-version-1',
    { path: 'records/first/stored.json' },
    {
      about: 'A published record of version 1; nothing is expected of its document.',
      expect: consistent(...OF_RECORD, 'attestation'),
    },
    {},
  ),
  draft(
    'any-measurement',
    record,
    { about: 'Any code is accepted.', expect: consistent(...OF_RECORD) },
    { roots: EXPECTED_OF_RECORD.roots ?? [], any_measurement: true },
  ),
  draft(
    'unset-members-of-null',
    { ...record, request: { stop: null, ...(record.request as JsonObject) } },
    {
      about: 'A member of null in the request, as records are served: it is not hashed.',
      expect: consistent(...OF_RECORD),
    },
  ),
  draft(
    'page',
    {
      completions: [record, storedOf({ record: { request: { ...REQUEST, seed: 7 } } })],
      next: null,
    },
    { about: 'A page of the history: every record on the page.', expect: consistent(...OF_RECORD) },
  ),
  fails(
    'page-with-one-that-fails',
    { completions: [record, { ...record, created_at: 1 }], next: null },
    { about: 'A page of the history, of which one record fails.', failed: ['created_at'] },
  ),
  draft('cut', storedOf({ record: { receipt: { outcome: 'upstream_error' } } }), {
    about: 'The answer was cut.',
    expect: consistent(...OF_RECORD),
  }),
  draft(
    'cut-accepted',
    storedOf({ record: { receipt: { outcome: 'upstream_error' } } }),
    { about: 'The answer was cut, and the checker takes it so.', expect: consistent(...OF_RECORD) },
    { ...EXPECTED_OF_RECORD, allow_outcomes: ['upstream_error'] },
  ),
  draft('encrypted', redactedOf(ofEncrypted), {
    about: 'An encrypted call: the record has hashes alone, and the receipt says that it may.',
    expect: consistent('request hash', 'response hash', ...OF_RECORD),
  }),
  draft(
    'encrypted-completed',
    redactedOf(ofEncrypted),
    {
      about: 'An encrypted call, with the request and the answer that its caller kept.',
      expect: consistent(...OF_RECORD),
    },
    {
      ...EXPECTED_OF_RECORD,
      request: { json: REQUEST },
      answer: { json: answerOf(ofEncrypted) },
    },
  ),
  fails('content-withheld-of-a-plain-call', redactedOf(record), {
    about: 'Content was taken out of a record whose receipt says that the call was not encrypted.',
    failed: ['request hash', 'response hash', 'hash', 'signature', 'receipt'],
  }),
  fails(
    'request-hash/of-another-request',
    storedOf({ record: { receipt: { request_hash: 'ab'.repeat(32) } } }),
    {
      about:
        'The enclave logged a receipt with another request_hash. By the rules the check receipt fails with it.',
      failed: ['request hash', 'receipt'],
    },
  ),
  fails(
    'request-changed',
    { ...record, request: { ...REQUEST, temperature: 0.8 } },
    {
      about: 'The request was changed.',
      failed: ['request hash', 'hash', 'signature', 'receipt'],
    },
  ),
  fails(
    'response-hash/proof-member',
    { ...record, response: { ...RESPONSE, signature: '0x' } },
    {
      about: 'The response has a member signature, which is not hashed.',
      failed: ['response hash'],
    },
  ),
  fails(
    'response-changed',
    { ...record, response: { ...RESPONSE, created: 7 } },
    {
      about: 'The response was changed.',
      failed: ['response hash', 'hash', 'signature', 'receipt'],
    },
  ),
  fails(
    'hash/another',
    { ...record, hash: 'ab'.repeat(32) },
    { about: "The record's hash is another one.", failed: ['hash'] },
  ),
  fails(
    'public-key/no-point',
    {
      ...record,
      public_key: badKey,
      attestation: documentFor(BOOT_CONFIGURATION, {
        public_key: Buffer.from(badKey.slice(2), 'hex'),
      }),
    },
    {
      about: 'No point of the curve, and the document names it.',
      failed: ['public key', 'signature', 'tree head'],
    },
  ),
  fails(
    'signature/of-another-key',
    { ...record, signature: STRANGER.signMessageSync(Buffer.from(String(record.hash), 'hex')) },
    { about: 'Another account signed the hash.', failed: ['signature'] },
  ),
  fails(
    'signature/high-s',
    { ...record, signature: malleated(String(record.signature)) },
    { about: 'The second form that the same signature has.', failed: ['signature'] },
  ),
  fails('receipt/of-another-hash', storedOf({ record: { receipt: { hash: 'ab'.repeat(32) } } }), {
    about: 'The enclave logged a receipt with another hash.',
    failed: ['receipt'],
  }),
  fails(
    'receipt/of-another-model',
    storedOf({
      record: { receipt: { model: { requested: 'demo/other', returned: 'demo/echo-2025' } } },
    }),
    { about: "model.requested is not the request's model.", failed: ['receipt'] },
  ),
  fails(
    'created-at/a-second-later',
    { ...record, created_at: Number(record.created_at) + 1 },
    { about: 'created_at is not finished_at in whole seconds.', failed: ['created_at'] },
  ),
  fails('attestation-key/of-another-notary', storedOf({ document: { public_key: foreignKey() } }), {
    about: 'A genuine document of the expected code, over another key.',
    failed: ['attestation key'],
  }),
  fails(
    'receipt-in-log/attempt-changed',
    { ...record, receipt: { ...receipt, attempt: 2 } },
    {
      about: 'A member of the receipt was changed that nothing but the leaf binds.',
      failed: ['receipt in log'],
    },
  ),
  fails('receipt-in-log/no-log', withoutLog(record), {
    about: 'A stored record without log.',
    failed: ['receipt in log', 'tree head'],
  }),
  fails(
    'tree-head/of-another-notary',
    {
      ...record,
      log: { ...log, signature: STRANGER.signingKey.sign(`0x${'11'.repeat(32)}`).serialized },
    },
    { about: 'Another account signed the head.', failed: ['tree head'] },
  ),
  fails(
    'tree-head/for-another-contract',
    { ...record, log: { ...log, contract: `0x${'c1'.repeat(20)}` } },
    { about: 'The head was signed for another contract.', failed: ['tree head'] },
  ),
  fails(
    'tree-head/for-another-chain',
    { ...record, log: { ...log, chain_id: 1 } },
    { about: 'The head was signed for another chain.', failed: ['tree head'] },
  ),
  fails(
    'tree-head/of-another-size',
    {
      ...record,
      log: { ...log, signature: NOTARY.signMessageSync(Buffer.from(String(log.root), 'hex')) },
    },
    { about: 'The notary signed the root as if it were a completion.', failed: ['tree head'] },
  ),
  fails(
    'attestation/of-other-code',
    record,
    { about: 'A genuine document of other code than is expected.', failed: ['attestation'] },
    { ...EXPECTED_OF_RECORD, pcrs: { 0: 'ab'.repeat(48) } },
  ),
  fails(
    'attestation/under-aws-root',
    record,
    {
      about: "A document under a development root, checked under AWS's root.",
      failed: ['attestation'],
    },
    { pcrs: EXPECTED_OF_RECORD.pcrs ?? {} },
  ),
  fails(
    'attestation/in-debug-mode',
    storedOf({ document: { pcrs: zeros } }),
    { about: 'The host can read the enclave.', failed: ['attestation'] },
    { roots: EXPECTED_OF_RECORD.roots ?? [], any_measurement: true },
  ),
  fails(
    'attestation/finished-after-the-leaf',
    storedOf({ record: { receipt: { finished_at: late } } }),
    {
      about: 'The completion finished a millisecond after the leaf ended.',
      failed: ['attestation'],
    },
  ),
  draft(
    'request-given',
    record,
    {
      about: 'The evidence is of the request that its caller kept.',
      expect: consistent(...OF_RECORD),
    },
    { ...EXPECTED_OF_RECORD, request: { json: REQUEST } },
  ),
  fails(
    'request-given/another',
    record,
    { about: 'The evidence is of another request.', failed: ['request given'] },
    { ...EXPECTED_OF_RECORD, request: { json: { ...REQUEST, seed: 7 } } },
  ),
  fails(
    'answer-given/another',
    record,
    { about: 'The evidence is of another answer.', failed: ['answer given'] },
    { ...EXPECTED_OF_RECORD, answer: { json: { ...answerOf(record), created: 7 } } },
  ),
  fails(
    'proof-given/another-receipt',
    record,
    {
      about: 'The answer that was kept has another receipt than the evidence.',
      failed: ['proof given'],
    },
    {
      ...EXPECTED_OF_RECORD,
      answer: { json: { ...answerOf(record), receipt: { ...receipt, started_at: 1 } } },
    },
  ),
]

function answerDraft(
  name: string,
  source: Json | Content,
  { about, expect }: Pick<Draft, 'about' | 'expect'>,
  request: Json = REQUEST,
): Draft {
  return {
    name: `answer/${name}`,
    about,
    kind: 'answer',
    source: isContent(source) ? source : { json: source },
    demands: { ...EXPECTED_OF_RECORD, request: { json: request } },
    expect,
  }
}

const whole = answerOf(record)
const answers: readonly Draft[] = [
  answerDraft('whole', whole, {
    about: 'An answer of the verified endpoint, with the request that was sent.',
    expect: consistent(...OF_ANSWER),
  }),
  answerDraft(
    'published',
    { path: 'records/second/created.json' },
    {
      about: 'The published answer, whose document is of another time.',
      expect: invalid(['attestation'], ...OF_ANSWER),
    },
    parseStrictJson(readFileSync(join(VECTORS, 'records/second/request.json'))),
  ),
  answerDraft('without-log', withoutLog(whole), {
    about:
      'An answer without log, as of a gateway before version 2: nothing binds what its receipt says beyond hashes and models.',
    expect: consistent(...OF_ANSWER, 'receipt', 'receipt in log', 'tree head'),
  }),
  answerDraft(
    'of-another-request',
    whole,
    {
      about: 'Another request than the answered one.',
      expect: invalid(['request hash', 'hash', 'signature', 'receipt'], ...OF_ANSWER),
    },
    { ...REQUEST, seed: 7 },
  ),
  answerDraft(
    'changed',
    { ...whole, service_tier: 'x' },
    {
      about: 'The answer was changed.',
      expect: invalid(['response hash', 'hash', 'signature', 'receipt'], ...OF_ANSWER),
    },
  ),
  answerDraft(
    'member-added',
    { ...whole, note: 'x' },
    {
      about: 'A member was added to the answer.',
      expect: invalid(['response hash', 'hash', 'signature', 'receipt'], ...OF_ANSWER),
    },
  ),
]

/** Cases whose source is a stored record, a page of records, or a whole answer. */
export const recordCases: readonly Draft[] = [...stored, ...answers]

function withoutLog({ log: _, ...rest }: JsonObject): JsonObject {
  return rest
}
