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
  type Draft,
  EXPECTED_OF_RECORD,
  incomplete,
  invalid,
  notAccepted,
  tableOf,
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

const cases = tableOf('record', EXPECTED_OF_RECORD)

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
  ...cases(incomplete(...OF_RECORD), {
    whole: ['A stored record: what the cases that fail are changed from.', record],
    'credential/operators-as-demanded': [
      "The request demands that the provider is shown no caller's credential.",
      storedOf({ record: { request: OPERATORS } }),
    ],
    'credential/callers-as-demanded': [
      "The request demands a caller's credential, which the receipt says was shown.",
      storedOf({ record: { request: CALLERS } }),
    ],
    'credential/none-as-demanded': [
      'The operator has no credential for the provider.',
      storedOf({
        record: { request: OPERATORS, receipt: { credential: { from: 'none', demanded: true } } },
      }),
    ],
    'credential/callers-without-demand': [
      'Without a demand, any credential in the receipt is accepted.',
      storedOf({ record: { receipt: { credential: { from: 'caller', demanded: false } } } }),
    ],
    'any-measurement': [
      'Any code is accepted.',
      record,
      { roots: EXPECTED_OF_RECORD.roots ?? [], any_measurement: true },
    ],
    'unset-members-of-null': [
      'A member of null in the request, as records are served: it is not hashed.',
      { ...record, request: { stop: null, ...(record.request as JsonObject) } },
    ],
    page: [
      'A page of the history: every record on the page.',
      {
        completions: [record, storedOf({ record: { request: { ...REQUEST, seed: 7 } } })],
        next: null,
      },
    ],
    cut: ['The answer was cut.', storedOf({ record: { receipt: { outcome: 'upstream_error' } } })],
    'cut-accepted': [
      'The answer was cut, and the checker takes it so.',
      storedOf({ record: { receipt: { outcome: 'upstream_error' } } }),
      { ...EXPECTED_OF_RECORD, allow_outcomes: ['upstream_error'] },
    ],
    'encrypted-completed': [
      'An encrypted call, with the request and the answer that its caller kept.',
      redactedOf(ofEncrypted),
      {
        ...EXPECTED_OF_RECORD,
        request: { json: REQUEST },
        answer: { json: answerOf(ofEncrypted) },
      },
    ],
    'request-given': [
      'The evidence is of the request that its caller kept.',
      record,
      { ...EXPECTED_OF_RECORD, request: { json: REQUEST } },
    ],
  }),
  ...cases(incomplete(...OF_RECORD, 'attestation'), {
    'nothing-expected': [
      'A published record; nothing is expected of its document.',
      { path: 'records/stored.json' },
      {},
    ],
  }),
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
  ).flatMap(([name, request, from, demanded, why]) =>
    cases(invalid(['receipt'], ...OF_RECORD), {
      [`credential/${name}`]: [
        `The provider was shown another credential than was demanded: ${why}.`,
        storedOf({ record: { request, receipt: { credential: { from, demanded } } } }),
      ],
    }),
  ),
  ...cases(invalid(['created_at'], ...OF_RECORD), {
    'page-with-one-that-fails': [
      'A page of the history, of which one record fails.',
      { completions: [record, { ...record, created_at: 1 }], next: null },
    ],
    'created-at/a-second-later': [
      'created_at is not finished_at in whole seconds.',
      { ...record, created_at: Number(record.created_at) + 1 },
    ],
  }),
  ...cases(incomplete('request hash', 'response hash', ...OF_RECORD), {
    encrypted: [
      'An encrypted call: the record has hashes alone, and the receipt says that it may.',
      redactedOf(ofEncrypted),
    ],
  }),
  ...cases(
    invalid(['request hash', 'response hash', 'hash', 'signature', 'receipt'], ...OF_RECORD),
    {
      'content-withheld-of-a-plain-call': [
        'Content was taken out of a record whose receipt says that the call was not encrypted.',
        redactedOf(record),
      ],
    },
  ),
  ...cases(invalid(['request hash', 'receipt'], ...OF_RECORD), {
    'request-hash/of-another-request': [
      'The enclave logged a receipt with another request_hash. By the rules the check receipt fails with it.',
      storedOf({ record: { receipt: { request_hash: 'ab'.repeat(32) } } }),
    ],
  }),
  ...cases(invalid(['request hash', 'hash', 'signature', 'receipt'], ...OF_RECORD), {
    'request-changed': [
      'The request was changed.',
      { ...record, request: { ...REQUEST, temperature: 0.8 } },
    ],
  }),
  ...cases(invalid(['response hash'], ...OF_RECORD), {
    'response-hash/proof-member': [
      'The response has a member signature, which is not hashed.',
      { ...record, response: { ...RESPONSE, signature: '0x' } },
    ],
  }),
  ...cases(invalid(['response hash', 'hash', 'signature', 'receipt'], ...OF_RECORD), {
    'response-changed': [
      'The response was changed.',
      { ...record, response: { ...RESPONSE, created: 7 } },
    ],
  }),
  ...cases(invalid(['hash'], ...OF_RECORD), {
    'hash/another': ["The record's hash is another one.", { ...record, hash: 'ab'.repeat(32) }],
  }),
  ...cases(invalid(['public key', 'signature', 'tree head'], ...OF_RECORD), {
    'public-key/no-point': [
      'No point of the curve, and the document names it.',
      {
        ...record,
        public_key: badKey,
        attestation: documentFor(BOOT_CONFIGURATION, {
          public_key: Buffer.from(badKey.slice(2), 'hex'),
        }),
      },
    ],
  }),
  ...cases(invalid(['signature'], ...OF_RECORD), {
    'signature/of-another-key': [
      'Another account signed the hash.',
      { ...record, signature: STRANGER.signMessageSync(Buffer.from(String(record.hash), 'hex')) },
    ],
    'signature/high-s': [
      'The second form that the same signature has.',
      { ...record, signature: malleated(String(record.signature)) },
    ],
  }),
  ...cases(invalid(['receipt'], ...OF_RECORD), {
    'receipt/of-another-hash': [
      'The enclave logged a receipt with another hash.',
      storedOf({ record: { receipt: { hash: 'ab'.repeat(32) } } }),
    ],
    'receipt/of-another-model': [
      "model.requested is not the request's model.",
      storedOf({
        record: { receipt: { model: { requested: 'demo/other', returned: 'demo/echo-2025' } } },
      }),
    ],
  }),
  ...cases(invalid(['attestation key'], ...OF_RECORD), {
    'attestation-key/of-another-notary': [
      'A genuine document of the expected code, over another key.',
      storedOf({ document: { public_key: foreignKey() } }),
    ],
  }),
  ...cases(invalid(['receipt in log'], ...OF_RECORD), {
    'receipt-in-log/attempt-changed': [
      'A member of the receipt was changed that nothing but the leaf binds.',
      { ...record, receipt: { ...receipt, attempt: 2 } },
    ],
  }),
  ...cases(invalid(['receipt in log', 'tree head'], ...OF_RECORD), {
    'receipt-in-log/no-log': ['A stored record without log.', withoutLog(record)],
  }),
  ...cases(invalid(['tree head'], ...OF_RECORD), {
    'tree-head/of-another-notary': [
      'Another account signed the head.',
      {
        ...record,
        log: { ...log, signature: STRANGER.signingKey.sign(`0x${'11'.repeat(32)}`).serialized },
      },
    ],
    'tree-head/for-another-contract': [
      'The head was signed for another contract.',
      { ...record, log: { ...log, contract: `0x${'c1'.repeat(20)}` } },
    ],
    'tree-head/for-another-chain': [
      'The head was signed for another chain.',
      { ...record, log: { ...log, chain_id: 1 } },
    ],
    'tree-head/of-another-size': [
      'The notary signed the root as if it were a completion.',
      {
        ...record,
        log: { ...log, signature: NOTARY.signMessageSync(Buffer.from(String(log.root), 'hex')) },
      },
    ],
  }),
  ...cases(notAccepted(['attestation'], ...OF_RECORD), {
    'attestation/of-other-code': [
      'A genuine document of other code than is expected.',
      record,
      { ...EXPECTED_OF_RECORD, pcrs: { 0: 'ab'.repeat(48) } },
    ],
    'attestation/under-aws-root': [
      "A document under a development root, checked under AWS's root.",
      record,
      { pcrs: EXPECTED_OF_RECORD.pcrs ?? {} },
    ],
    'attestation/in-debug-mode': [
      'The host can read the enclave.',
      storedOf({ document: { pcrs: zeros } }),
      { roots: EXPECTED_OF_RECORD.roots ?? [], any_measurement: true },
    ],
  }),
  ...cases(invalid(['attestation'], ...OF_RECORD), {
    'attestation/finished-after-the-leaf': [
      'The completion finished a millisecond after the leaf ended.',
      storedOf({ record: { receipt: { finished_at: late } } }),
    ],
  }),
  ...cases(invalid(['request given'], ...OF_RECORD), {
    'request-given/another': [
      'The evidence is of another request.',
      record,
      { ...EXPECTED_OF_RECORD, request: { json: { ...REQUEST, seed: 7 } } },
    ],
  }),
  ...cases(invalid(['answer given'], ...OF_RECORD), {
    'answer-given/another': [
      'The evidence is of another answer.',
      record,
      { ...EXPECTED_OF_RECORD, answer: { json: { ...answerOf(record), created: 7 } } },
    ],
  }),
  ...cases(invalid(['proof given'], ...OF_RECORD), {
    'proof-given/another-receipt': [
      'The answer that was kept has another receipt than the evidence.',
      record,
      {
        ...EXPECTED_OF_RECORD,
        answer: { json: { ...answerOf(record), receipt: { ...receipt, started_at: 1 } } },
      },
    ],
  }),
]

const sent = (request: Json) => ({ ...EXPECTED_OF_RECORD, request: { json: request } })
const answersOf = tableOf('answer', sent(REQUEST))
const whole = answerOf(record)
const answers: readonly Draft[] = [
  ...answersOf(incomplete(...OF_ANSWER), {
    whole: ['An answer of the verified endpoint, with the request that was sent.', whole],
  }),
  ...answersOf(notAccepted(['attestation'], ...OF_ANSWER), {
    published: [
      'The published answer, whose document has another root.',
      { path: 'records/created.json' },
      sent(parseStrictJson(readFileSync(join(VECTORS, 'records/request.json')))),
    ],
  }),
  ...answersOf(incomplete(...OF_ANSWER, 'receipt', 'receipt in log', 'tree head'), {
    'without-log': [
      'An answer without log: nothing binds what its receipt says beyond hashes and models.',
      withoutLog(whole),
    ],
  }),
  ...answersOf(invalid(['request hash', 'hash', 'signature', 'receipt'], ...OF_ANSWER), {
    'of-another-request': [
      'Another request than the answered one.',
      whole,
      sent({ ...REQUEST, seed: 7 }),
    ],
  }),
  ...answersOf(invalid(['response hash', 'hash', 'signature', 'receipt'], ...OF_ANSWER), {
    changed: ['The answer was changed.', { ...whole, service_tier: 'x' }],
    'member-added': ['A member was added to the answer.', { ...whole, note: 'x' }],
  }),
]

/** Cases whose source is a stored record, a page of records, or a whole answer. */
export const recordCases: readonly Draft[] = [...stored, ...answers]

function withoutLog({ log: _, ...rest }: JsonObject): JsonObject {
  return rest
}
