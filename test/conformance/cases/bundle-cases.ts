import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { keccak256, TypedDataEncoder } from 'ethers'
import { decodeBase64, encodeHex } from '#attestation/bytes.ts'
import { type EvidenceBundle, redactBundle } from '#attestation/evidence/bundle.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { CHAIN_ID, NOTARY, REQUEST, RESPONSE } from '../../attestation/build-record.ts'
import {
  anchoredEvent,
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
  documentFor,
  type EvidenceParts,
  FINISHED_AT,
  signAnchor,
} from '../../attestation/evidence/build-evidence.ts'
import { buildStream, withChunks } from '../../attestation/evidence/build-stream.ts'
import { moveBlock } from '../../attestation/evidence/move-block.ts'
import { removeAt } from '../../attestation/mutate-json.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { VECTORS } from '../manifest.ts'
import {
  CONFIGURATION,
  type Content,
  type Draft,
  type DraftDemands,
  EXPECTED,
  incomplete,
  invalid,
  notAccepted,
  OFFLINE,
  pemOf,
  setAt,
  tableOf,
  textOf,
  UNREADABLE,
  verified,
} from './draft.ts'
import { foreignKey, malleated, offCurve, STRANGER } from './signatures.ts'

const built = (parts: EvidenceParts = {}): EvidenceBundle =>
  buildEvidence({ neighbours: [2, 3], ...parts }).bundle
const bundle = built()
const { block, record } = bundle
if (block === null) throw new Error('expected a block')
const blockOnChain = { [block.number]: block.hash }
const OTHER_HASH = `0x${'11'.repeat(32)}`
const OTHER_CONTRACT = `0x${'c1'.repeat(20)}`
const MINED_CHECKS = ['block header', 'anchor time', 'transaction in block', 'anchor outcome']

const cases = tableOf('bundle', EXPECTED)

const withRecord = (changes: JsonObject): EvidenceBundle => built({ stored: changes })
const unmined = built({ isMined: false })
const withoutBlock = (changes: JsonObject): JsonObject =>
  ({
    ...unmined,
    no_block: { reason: 'not_mined', transaction: unmined.record.tx_hash, ...changes },
  }) as unknown as JsonObject
const SOURCE: JsonObject = {
  gateway: 'https://gateway.example',
  operator: 'Example Ltd',
  releases: 'https://gateway.example/releases.json',
}
const withSource = (source: JsonObject): JsonObject =>
  ({ ...bundle, source }) as unknown as JsonObject
const later = built({ record: { after: 9 } })
const other = built({ record: { response: { ...RESPONSE, id: 'other' } } })

const real = (): readonly [Content, DraftDemands, NonNullable<DraftDemands['chain']>] => {
  const folder = join(VECTORS, 'evidence')
  const own: EvidenceBundle = JSON.parse(readFileSync(join(folder, 'bundle.json'), 'utf8'))
  const expected = JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8'))
  const { cabundle } = decodeAttestationPayload(decodeBase64(own.record.attestation))
  const root = cabundle[0] ?? new Uint8Array()
  const demands = {
    roots: [pemOf(root)],
    pcrs: expected.measurements,
    configurations: expected.configurations,
  }
  const { chainId, newestBlock, blockHash } = expected.chain
  const chain = {
    chain_id: Number(chainId),
    newest_block: Number(newestBlock),
    blocks: { [own.block?.number ?? 0]: String(blockHash) },
  }
  return [{ path: 'evidence/bundle.json' }, demands, chain]
}

const [recorded, recordedDemands, recordedChain] = real()

const cut = (outcome: 'client_disconnected' | 'upstream_error') =>
  built({ record: { receipt: { outcome } } })

const holds: readonly Draft[] = [
  ...cases(verified(OFFLINE), {
    recorded: ['A bundle of a service with a local chain.', recorded, recordedDemands],
    reanchored: [
      'The head was anchored again: the mined transaction is the second of reanchored.',
      withRecord({
        tx_hash: OTHER_HASH,
        reanchored: [`0x${'cd'.repeat(32)}`, record.tx_hash],
      }),
    ],
    whole: [
      'A bundle in a block of six transactions: what the cases that fail are changed from.',
      bundle,
    ],
    'alone-in-its-block': [
      'Both tries have one leaf, whose key is the RLP of 0.',
      built({ neighbours: [0, 0] }),
    ],
    'first-in-its-block': [
      'Index 0, whose key 0x80 shares nibbles with that of index 128.',
      built({ neighbours: [0, 130] }),
    ],
    'deep-in-its-block': ['Index 200: a key of two bytes.', built({ neighbours: [200, 100] })],
    'alone-in-its-log': [
      'A log of one leaf: the path is empty.',
      built({ record: { before: 0, after: 0 } }),
    ],
    'last-in-its-log': [
      'The last leaf of seven: a path shorter than the height of the tree.',
      built({ record: { before: 6, after: 0 } }),
    ],
    'written-otherwise': [
      'The same values as text: other order of members, escapes, white space, created_at as a number with an exponent.',
      rewritten(bundle),
    ],
    'block-60-seconds-older': [
      'The clocks of block and enclave may differ by 60 s.',
      moveBlock(bundle, Math.ceil((FINISHED_AT - 60_000) / 1000)),
    ],
    'finished-60-seconds-before-its-document': [
      'The clocks of enclave and security module may differ by 60 s.',
      built({ document: { timestamp: FINISHED_AT + 60_000 } }),
    ],
    'finished-in-the-last-millisecond-of-the-leaf': [
      'notAfter times 1000 is the last millisecond that counts.',
      built({ record: { receipt: { finished_at: MADE_AT.getTime() + 2 * 3600_000 } } }),
    ],
    'second-attempt': [
      'A second attempt is reported, and fails no check.',
      built({ record: { receipt: { attempt: 2 } } }),
    ],
    'members-the-interface-does-not-know': [
      'Unknown members are hashed like all others; null inside them stays.',
      built({
        record: {
          request: { ...REQUEST, vendor: { a: [1, null] } },
          response: { ...RESPONSE, vendor: -0.5 },
        },
      }),
    ],
  }),
  ...cases(verified(), {
    'recorded-with-its-chain': [
      'The same, and a chain that has its block.',
      recorded,
      { ...recordedDemands, chain: recordedChain },
    ],
    'three-confirmations': [
      'The block is three deep, itself included, and three are demanded.',
      bundle,
      {
        ...EXPECTED,
        chain: { chain_id: CHAIN_ID, newest_block: block.number + 2, blocks: blockOnChain },
        confirmations: 3,
      },
    ],
  }),
]

const open: readonly Draft[] = [
  ...cases(incomplete('measurements', 'expected configuration', OFFLINE), {
    'nothing-expected': [
      'Neither measurements nor a configuration are expected.',
      bundle,
      { roots: EXPECTED.roots ?? [] },
    ],
    'with-source-and-nothing-expected': [
      'The bundle names a list of releases, from which no expectation is taken.',
      withSource(SOURCE),
      { roots: EXPECTED.roots ?? [] },
    ],
  }),
  ...cases(incomplete('measurements', OFFLINE), {
    'any-measurement': [
      'Any code is accepted, so that the code is not checked.',
      bundle,
      { roots: EXPECTED.roots ?? [], configurations: [CONFIGURATION], any_measurement: true },
    ],
  }),
  ...cases(incomplete('expected configuration', OFFLINE), {
    'no-configuration-expected': [
      'No configuration is expected.',
      bundle,
      { roots: EXPECTED.roots ?? [], pcrs: EXPECTED.pcrs ?? {} },
    ],
  }),
  ...cases(incomplete(...MINED_CHECKS, OFFLINE), {
    unmined: ['Made before the anchor was mined.', built({ isMined: false })],
  }),
  ...(['not_mined', 'not_read', 'not_readable'] as const).flatMap((reason) =>
    cases(incomplete(...MINED_CHECKS, OFFLINE), {
      [`without-block-${reason}`]: [
        'The gateway says why there is no block, which nothing binds.',
        withoutBlock({ reason }),
      ],
    }),
  ),
  ...cases(verified(OFFLINE), {
    'with-source': [
      'The bundle says where it is from, which nothing binds: the verdict is the same.',
      withSource(SOURCE),
    ],
  }),
  ...(['client_disconnected', 'upstream_error'] as const).flatMap((outcome) => [
    ...cases(incomplete('outcome', OFFLINE), {
      [`cut-${outcome}`]: ['The answer was cut.', cut(outcome)],
    }),
    ...cases(verified(OFFLINE), {
      [`cut-${outcome}-accepted`]: [
        'The answer was cut, and the checker takes it so.',
        cut(outcome),
        { ...EXPECTED, allow_outcomes: [outcome] },
      ],
    }),
  ]),
  ...cases(incomplete('outcome', OFFLINE), {
    'cut-another-outcome-accepted': [
      'The checker takes answers that were cut otherwise.',
      cut('upstream_error'),
      { ...EXPECTED, allow_outcomes: ['client_disconnected'] },
    ],
  }),
  ...cases(incomplete('request hash', OFFLINE), {
    'redacted-request': ['The request is left out.', redactBundle(bundle, { request: true })],
  }),
  ...cases(incomplete('response hash', OFFLINE), {
    'redacted-response': ['The response is left out.', redactBundle(bundle, { response: true })],
  }),
  ...cases(incomplete('request hash', 'response hash', OFFLINE), {
    'redacted-both': [
      'Both parts are left out.',
      redactBundle(bundle, { request: true, response: true }),
    ],
  }),
]

const parts: readonly Draft[] = [
  ...cases(invalid(['request hash', 'receipt'], OFFLINE), {
    'request-hash/of-another-request': [
      'The enclave logged a receipt with another request_hash. By the rules the check receipt fails with it.',
      built({ record: { receipt: { request_hash: 'ab'.repeat(32) } } }),
    ],
  }),
  ...cases(invalid(['request hash', 'hash', 'signature', 'receipt'], OFFLINE), {
    'request-hash/redacted': [
      'The hash in place of the request is another one.',
      {
        ...redactBundle(bundle, { request: true }),
        record: {
          ...redactBundle(bundle, { request: true }).record,
          request_hash: 'ab'.repeat(32),
        },
      } as Json,
    ],
    'request-changed': [
      'The request was changed.',
      setAt(bundle, ['record', 'request', 'temperature'], 0.8),
    ],
  }),
  ...cases(invalid(['response hash'], OFFLINE), {
    'response-hash/proof-member': [
      'The response has a member tx_hash, which is not hashed: it was put there unsigned.',
      withRecord({ response: { ...RESPONSE, tx_hash: OTHER_HASH } }),
    ],
  }),
  ...cases(invalid(['response hash', 'hash', 'signature', 'receipt'], OFFLINE), {
    'response-changed': [
      'The response was changed.',
      setAt(bundle, ['record', 'response', 'choices', 0, 'message', 'content'], 'klein'),
    ],
  }),
  ...cases(invalid(['response hash', 'receipt'], OFFLINE), {
    'response-of-another-completion': [
      'Receipt, log and anchor are of another completion of the same notary.',
      {
        ...other,
        record: {
          ...record,
          receipt: other.record.receipt,
          log: other.record.log,
          tx_hash: other.record.tx_hash,
        },
      },
    ],
  }),
  ...cases(invalid(['hash'], OFFLINE), {
    'hash/another': [
      "The record's hash is another one; signature and receipt are of the right one.",
      withRecord({ hash: 'ab'.repeat(32) }),
    ],
  }),
  ...cases(invalid(['public key', 'signature', 'tree head', 'anchor outcome'], OFFLINE), {
    'public-key/no-point': [
      'No point of the curve, and the document names it. What needs its address fails with it.',
      setAt(
        setAt(bundle, ['record', 'public_key'], offCurve(record.public_key)),
        ['record', 'attestation'],
        documentFor(BOOT_CONFIGURATION, {
          public_key: Buffer.from(offCurve(record.public_key).slice(2), 'hex'),
        }),
      ),
    ],
  }),
  ...cases(invalid(['signature'], OFFLINE), {
    'signature/of-another-key': [
      'Another account signed the hash.',
      withRecord({ signature: STRANGER.signMessageSync(Buffer.from(record.hash, 'hex')) }),
    ],
    'signature/high-s': [
      'The second form that the same signature has.',
      withRecord({ signature: malleated(record.signature) }),
    ],
    'signature/of-the-hash-as-text': [
      'Over the 64 hex digits in place of the 32 bytes.',
      withRecord({ signature: NOTARY.signMessageSync(record.hash) }),
    ],
    'signature/without-prefix': [
      'Over the hash itself, without the prefix of EIP-191.',
      withRecord({ signature: NOTARY.signingKey.sign(`0x${record.hash}`).serialized }),
    ],
  }),
  ...[27, 28].flatMap((v) => {
    const signed = built({ record: { request: ofV(v) } })
    const signature = `${signed.record.signature.slice(0, -2)}0${v - 27}`
    return cases(invalid(['signature'], OFFLINE), {
      [`signature/v-of-${v - 27}`]: [
        `v is ${v - 27} in place of ${v}.`,
        setAt(signed, ['record', 'signature'], signature),
      ],
    })
  }),
  ...cases(invalid(['receipt'], OFFLINE), {
    'receipt/of-another-hash': [
      'The enclave logged a receipt with another hash.',
      built({ record: { receipt: { hash: 'ab'.repeat(32) } } }),
    ],
    'receipt/of-another-requested-model': [
      "model.requested is not the request's model.",
      built({
        record: { receipt: { model: { requested: 'demo/other', returned: 'demo/echo-2025' } } },
      }),
    ],
    'receipt/of-another-returned-model': [
      "model.returned is not the response's model.",
      built({ record: { receipt: { model: { requested: 'demo/echo', returned: 'demo/echo' } } } }),
    ],
    'receipt/of-a-stream': [
      'A stream_hash, of a request that asked for no stream.',
      built({ record: { streamHash: 'ab'.repeat(32) } }),
    ],
    'receipt/of-no-stream': [
      'No stream_hash, of a request that asked for a stream.',
      built({ record: { request: { ...REQUEST, stream: true } } }),
    ],
  }),
  ...cases(invalid(['created_at'], OFFLINE), {
    'created-at/a-second-later': [
      'created_at is not finished_at in whole seconds.',
      withRecord({ created_at: record.created_at + 1 }),
    ],
  }),
]

const enclaves: readonly Draft[] = [
  ...cases(invalid(['attestation key'], OFFLINE), {
    'attestation-key/of-another-notary': [
      'A genuine document of the expected code, over another key.',
      built({ document: { public_key: foreignKey() } }),
    ],
    'attestation-key/none': [
      'A genuine document over no key.',
      built({ document: { public_key: null } }),
    ],
  }),
  ...cases(notAccepted(['attestation document'], 'attestation time', 'measurements', OFFLINE), {
    'attestation-document/under-aws-root': [
      "A document under a development root, checked under AWS's root.",
      bundle,
      { pcrs: EXPECTED.pcrs ?? {}, configurations: [CONFIGURATION] },
    ],
  }),
  ...cases(invalid(['attestation time'], OFFLINE), {
    'attestation-time/finished-after-the-leaf': [
      'The completion finished a millisecond after the leaf ended.',
      built({ record: { receipt: { finished_at: MADE_AT.getTime() + 2 * 3600_000 + 1 } } }),
    ],
    'attestation-time/finished-before-the-document': [
      'The document was made 60.001 s after the completion finished.',
      built({ document: { timestamp: FINISHED_AT + 60_001 } }),
    ],
  }),
  ...cases(notAccepted(['measurements'], OFFLINE), {
    'measurements/of-other-code': [
      'A genuine document of other code than is expected.',
      bundle,
      { ...EXPECTED, pcrs: { ...EXPECTED.pcrs, 0: 'ab'.repeat(48) } },
    ],
    'measurements/one-of-three-differs': [
      'Two of three measurements are the expected ones.',
      bundle,
      { ...EXPECTED, pcrs: { ...EXPECTED.pcrs, 2: 'ab'.repeat(48) } },
    ],
    'measurements/one-is-missing': [
      'A PCR is expected that the document does not have.',
      bundle,
      { ...EXPECTED, pcrs: { ...EXPECTED.pcrs, 20: 'ab'.repeat(48) } },
    ],
    'measurements/zeros': [
      'Zeros satisfy no expectation.',
      bundle,
      { ...EXPECTED, pcrs: { ...EXPECTED.pcrs, 20: '00'.repeat(48) } },
    ],
  }),
  ...cases(invalid(['boot configuration'], OFFLINE), {
    'boot-configuration/of-another': [
      'The document names another configuration than the bundle shows, which is the expected one.',
      built({ stored: { attestation: documentFor({ ...BOOT_CONFIGURATION, ca_sha256: '' }) } }),
    ],
    'boot-configuration/none': [
      'The document names no configuration.',
      built({ document: { user_data: null } }),
    ],
  }),
  ...booted(
    'boot-configuration/of-another-chain',
    { ...BOOT_CONFIGURATION, chain_id: 1 },
    'An expected configuration, for another chain than the log is anchored on.',
    ['boot configuration'],
  ),
  ...booted(
    'boot-configuration/of-another-contract',
    { ...BOOT_CONFIGURATION, contract: OTHER_CONTRACT },
    'An expected configuration, for another contract than the log is anchored in.',
    ['boot configuration'],
  ),
  ...cases(notAccepted(['expected configuration'], OFFLINE), {
    'expected-configuration/another': [
      'Another configuration is expected.',
      bundle,
      { ...EXPECTED, configurations: ['ab'.repeat(32)] },
    ],
  }),
  ...booted(
    'provider/at-another-origin',
    { ...BOOT_CONFIGURATION, providers: [{ name: 'demo', origin: 'https://evil.example' }] },
    "An expected configuration in which the receipt's provider has another origin.",
    ['provider'],
  ),
  ...booted(
    'provider/origin-of-another',
    {
      ...BOOT_CONFIGURATION,
      providers: [
        { name: 'demo', origin: 'https://other.example' },
        { name: 'other', origin: 'https://provider.example' },
      ],
    },
    "Name and origin of the receipt's provider are in the configuration, in different entries.",
    ['provider'],
  ),
]

const logs: readonly Draft[] = [
  ...cases(invalid(['receipt in log'], OFFLINE), {
    'receipt-in-log/attempt-changed': [
      'A member of the receipt was changed that nothing but the leaf binds.',
      withRecord({ receipt: { ...record.receipt, attempt: 2 } as unknown as Json }),
    ],
    'receipt-in-log/provider-origin-added': [
      'The hash of what the provider sent was changed.',
      withRecord({
        receipt: { ...record.receipt, received_hash: 'ab'.repeat(32) },
      }),
    ],
    'receipt-in-log/another-index': [
      'The receipt says another index.',
      withRecord({ receipt: { ...record.receipt, index: 4 } as unknown as Json }),
    ],
    'receipt-in-log/index-beyond-the-log': [
      'The index is not below the size.',
      built({
        record: { receipt: { index: 5 } },
        stored: { receipt: { ...record.receipt, index: 99 } as unknown as Json },
      }),
    ],
    'receipt-in-log/path-too-long': [
      'A hash too many in the path.',
      setAt(bundle, ['record', 'log', 'path'], [...record.log.path, 'ab'.repeat(32)]),
    ],
    'receipt-in-log/path-too-short': [
      'A hash too few in the path.',
      setAt(bundle, ['record', 'log', 'path'], record.log.path.slice(0, -1)),
    ],
  }),
  ...cases(invalid(['tree head'], OFFLINE), {
    'tree-head/of-another-notary': [
      'Another account signed the head, which was anchored as such.',
      signedHead(`0x${STRANGER.signingKey.sign(OTHER_HASH).serialized.slice(2)}`),
    ],
    'tree-head/high-s': [
      'The second form of the signature, which was anchored as such.',
      signedHead(malleated(record.log.signature)),
    ],
  }),
  ...cases(invalid(['anchor', 'anchor outcome'], OFFLINE), {
    'log-of-a-later-head': [
      'A later head of the same log, right in itself, with the anchor of the earlier.',
      setAt(bundle, ['record', 'log'], later.record.log as unknown as Json),
    ],
  }),
]

const anchors: readonly Draft[] = [
  ...cases(invalid(['transaction hash'], OFFLINE), {
    'transaction-hash/another': [
      'tx_hash is that of another transaction.',
      withRecord({ tx_hash: OTHER_HASH }),
    ],
    'transaction-hash/not-among-reanchored': [
      'Neither tx_hash nor reanchored names the transaction.',
      withRecord({ tx_hash: OTHER_HASH, reanchored: [`0x${'cd'.repeat(32)}`] }),
    ],
  }),
  ...cases(invalid(['anchor'], OFFLINE), {
    'anchor/on-another-chain': [
      'The transaction is for another chain.',
      built({ anchor: { chainId: 1 } }),
    ],
    'anchor/to-another-contract': [
      'The transaction calls another contract.',
      built({ anchor: { contract: OTHER_CONTRACT } }),
    ],
    'anchor/of-another-size': [
      'The transaction brings another size.',
      built({ anchor: { size: 10 } }),
    ],
    'anchor/of-another-root': [
      'The transaction brings another root.',
      built({ anchor: { root: new Uint8Array(32) } }),
    ],
    'anchor/with-another-signature': [
      'The transaction brings another signature.',
      built({
        anchor: {
          signature: new Uint8Array(
            Buffer.from(STRANGER.signingKey.sign(OTHER_HASH).serialized.slice(2), 'hex'),
          ),
        },
      }),
    ],
    'anchor/no-transaction': [
      'Bytes that are no transaction, though tx_hash is their hash and the block holds them.',
      built({ transaction: `0x02${'c0'.repeat(40)}` }),
    ],
  }),
  ...cases(invalid(['block header'], OFFLINE), {
    'block-header/another-number': [
      "The block's number is not its header's.",
      setAt(bundle, ['block', 'number'], block.number + 1),
    ],
    'block-header/another-hash': [
      "The block's hash is not its header's.",
      setAt(bundle, ['block', 'hash'], OTHER_HASH),
    ],
  }),
  ...cases(invalid(['anchor time'], OFFLINE), {
    'anchor-time/older-than-the-completion': [
      'The block is more than 60 s older than the completion.',
      moveBlock(bundle, Math.ceil((FINISHED_AT - 60_000) / 1000) - 1),
    ],
    'anchor-time/older-than-the-document': [
      'The block is more than 60 s older than the document, and not so much older than the completion.',
      moveBlock(
        built({ document: { timestamp: FINISHED_AT + 50_000 } }),
        Math.ceil((FINISHED_AT - 10_000) / 1000) - 1,
      ),
    ],
    'anchor-time/an-hour-older': [
      'A made-up block, an hour older than the completion.',
      moveBlock(bundle, Math.floor(FINISHED_AT / 1000) - 3600),
    ],
  }),
  ...cases(invalid(['transaction in block'], OFFLINE), {
    'transaction-in-block/another': [
      'The block holds another transaction of the same call, which succeeded.',
      { ...bundle, block: built({ anchor: { nonce: 8 } }).block },
    ],
    'transaction-in-block/another-place': [
      'The proof is of another place in another trie.',
      setAt(
        bundle,
        ['block', 'transaction_proof'],
        (built({ neighbours: [6, 19] }).block?.transaction_proof ?? []) as Json,
      ),
    ],
    'transaction-in-block/node-too-many': [
      'A node more than the proof needs.',
      setAt(
        bundle,
        ['block', 'transaction_proof'],
        [...block.transaction_proof, block.transaction_proof.at(-1) ?? ''],
      ),
    ],
  }),
  ...cases(invalid(['anchor outcome'], OFFLINE), {
    'anchor-outcome/reverted': ['The transaction reverted.', built({ status: 0 })],
    'anchor-outcome/no-event': ['No contract said that it took the head.', built({ events: [] })],
    'anchor-outcome/event-of-another-contract': [
      'Another contract said that it took the head.',
      built({ events: [{ ...anchoredEvent(record.log), address: OTHER_CONTRACT }] }),
    ],
    'anchor-outcome/event-of-another-head': [
      'The contract took another head.',
      built({ events: [anchoredEvent(later.record.log)] }),
    ],
    'anchor-outcome/event-of-another-notary': [
      'The contract took a head of another notary.',
      built({
        events: [
          {
            ...anchoredEvent(record.log),
            topics: anchoredEvent(record.log).topics.map((topic, at) =>
              at === 1 ? `0x${STRANGER.address.slice(2).toLowerCase().padStart(64, '0')}` : topic,
            ),
          },
        ],
      }),
    ],
    'anchor-outcome/receipt-of-another-place': [
      'The proof is of another place in another trie.',
      setAt(
        bundle,
        ['block', 'receipt_proof'],
        (built({ neighbours: [6, 19] }).block?.receipt_proof ?? []) as Json,
      ),
    ],
  }),
  ...cases(invalid(['transaction in block', 'anchor outcome'], OFFLINE), {
    'anchor-outcome/receipt-of-a-neighbour': [
      'The place of a neighbour that succeeded, in place of one that reverted.',
      setAt(built({ status: 0 }), ['block', 'transaction_index'], 1),
    ],
  }),
  ...onChain('no-such-block', 'The chain has no block of that number.', {
    chain_id: CHAIN_ID,
    newest_block: block.number - 1,
    blocks: {},
  }),
  ...onChain('another-block', 'The chain has another block of that number.', {
    chain_id: CHAIN_ID,
    newest_block: block.number + 9,
    blocks: { [block.number]: OTHER_HASH },
  }),
  ...onChain(
    'too-few-confirmations',
    'Three confirmations are demanded, and two are there.',
    { chain_id: CHAIN_ID, newest_block: block.number + 1, blocks: blockOnChain },
    3,
  ),
]

const PENDING = { ...bundle, transaction: null, block: null }
const stream = buildStream()
const [firstEvent, ...otherEvents] = stream.bundle.events ?? []

/** What only the caller has: the events of a stream, and requests without an answer. */
const kept: readonly Draft[] = [
  ...cases(incomplete('transaction hash', 'anchor', ...MINED_CHECKS, OFFLINE), {
    'kept/before-its-anchor': ['The caller saved it before the anchor was known.', PENDING],
  }),
  ...cases(incomplete('other requests', OFFLINE), {
    'kept/other-requests': [
      'The caller also sent the call to another enclave.',
      { ...bundle, unanswered: [{ notary: `0x${'ab'.repeat(20)}`, times: 1 }] },
    ],
  }),
  ...cases(verified('response hash', OFFLINE), {
    'kept/stream-without-its-usage': [
      'The chunks of a stream have all of the answer, and the response is left out.',
      stream.bundle,
    ],
  }),
  ...cases(invalid(['stream hash'], 'response hash', OFFLINE), {
    'kept/stream-without-a-chunk': [
      'A chunk of the stream is missing.',
      { ...stream.bundle, events: otherEvents },
    ],
    'kept/stream-with-a-chunk-twice': [
      'A chunk of the stream is there twice, and no key made the call repeatable.',
      { ...stream.bundle, events: [firstEvent, firstEvent, ...otherEvents] as never },
    ],
    'kept/stream-with-names': [
      'The chunks of a chat have names, which no hash covers.',
      {
        ...stream.bundle,
        events: [firstEvent, ...otherEvents].map((one) => ({ event: 'a', ...one })) as never,
      },
    ],
    'kept/stream-with-another-proof': [
      'The last chunk names another transaction than the record.',
      withChunks(
        stream.bundle,
        stream.chunks.with(-1, { ...stream.chunks.at(-1), tx_hash: `0x${'ab'.repeat(32)}` }),
      ),
    ],
  }),
]

const NOTHING_CHECKED = [
  'request hash',
  'response hash',
  'hash',
  'public key',
  'signature',
  'receipt',
  'created_at',
  'attestation key',
  'attestation document',
  'attestation time',
  'measurements',
  'boot configuration',
  'expected configuration',
  'provider',
  'outcome',
  'receipt in log',
  'tree head',
  'transaction hash',
  'anchor',
  ...MINED_CHECKS,
  OFFLINE,
]

/** All other parts are correct: a lenient reader verifies these. */
const forms: readonly Draft[] = cases(invalid(['format'], ...NOTHING_CHECKED), {
  'format/member-more': [
    'A member of the bundle that the format does not have.',
    { ...bundle, note: 'x' },
  ],
  'format/record-member-more': [
    "The record's id, which nothing binds.",
    setAt(bundle, ['record', 'id'], 'x'),
  ],
  'format/log-member-more': [
    'A member of the log that it does not have.',
    setAt(bundle, ['record', 'log', 'note'], 'x'),
  ],
  'format/block-member-more': [
    'A member of the block that it does not have.',
    setAt(bundle, ['block', 'note'], 'x'),
  ],
  'format/block-without-its-transaction': [
    'A block, and no transaction.',
    { ...bundle, transaction: null },
  ],
  'format/events-without-data': ['An event without its data.', { ...bundle, events: [{}] }],
  'format/idempotent-without-events': ['Nothing to repeat.', { ...bundle, idempotent: true }],
  'format/unanswered-no-time': [
    'A request that was sent no time.',
    { ...bundle, unanswered: [{ notary: `0x${'ab'.repeat(20)}`, times: 0 }] },
  ],
  'format/another-version': ['A version that does not exist.', { ...bundle, version: 4 }],
  'format/version-of-another-receipt': [
    'The version is not that of the receipt.',
    { ...bundle, version: 2 },
  ],
  'format/another-format': [
    'A format that does not exist.',
    { ...bundle, format: 'affidavit-evidence-2' },
  ],
  'format/hex-in-upper-case': [
    'Hex in upper case.',
    setAt(bundle, ['record', 'tx_hash'], record.tx_hash.toUpperCase().replace('0X', '0x')),
  ],
  'format/hex-without-prefix': [
    'Hex without 0x.',
    setAt(bundle, ['transaction'], String(bundle.transaction).slice(2)),
  ],
  'format/base64-without-padding': [
    'A line feed after the document, and no padding.',
    setAt(bundle, ['record', 'attestation'], record.attestation.replace(/=+$/, '').concat('\n')),
  ],
  'format/null-in-the-request': [
    'A member of null in the request, which is not hashed.',
    setAt(bundle, ['record', 'request', 'stop'], null),
  ],
  'format/request-and-its-hash': [
    'A request and its hash together.',
    setAt(bundle, ['record', 'request_hash'], record.receipt.request_hash),
  ],
  'format/response-and-its-hash': [
    'A response and its hash together.',
    setAt(bundle, ['record', 'response_hash'], record.receipt.response_hash),
  ],
  'format/no-block-member': ['Block is missing, in place of null.', removeAt(bundle, ['block'])],
  'format/empty-reanchored': [
    'reanchored is there, and names nothing.',
    setAt(bundle, ['record', 'reanchored'], []),
  ],
  'format/no-block-beside-a-block': [
    'no_block, and a block.',
    { ...bundle, no_block: withoutBlock({}).no_block },
  ],
  'format/no-block-of-an-unknown-reason': [
    'no_block with a reason that is none of the three.',
    withoutBlock({ reason: 'lost' }),
  ],
  'format/no-block-of-another-transaction': [
    'no_block names a transaction that the record does not.',
    withoutBlock({ transaction: OTHER_HASH }),
  ],
  'format/source-of-no-member': ['The source has no member.', withSource({})],
  'format/source-with-one-more-member': [
    'The source has a member that the format does not name.',
    withSource({ ...SOURCE, expect: 'https://gateway.example/expect.json' }),
  ],
  'format/source-of-a-script': [
    'The gateway of the source has neither http nor https.',
    withSource({ gateway: 'javascript:alert(1)' }),
  ],
  'format/source-with-a-user': [
    'The gateway of the source has a user before its host.',
    withSource({ gateway: 'https://gateway.example@other.example' }),
  ],
  'format/source-with-a-terminal-escape': [
    'The operator of the source has a control character.',
    withSource({ operator: 'Example\u001b[2J' }),
  ],
  'format/configuration-with-a-format': [
    'The boot configuration has a member format, and the document does not state that configuration.',
    setAt(bundle, ['boot_configuration', 'format'], 'affidavit-head-attestation'),
  ],
})

const FORMATTED = { ...BOOT_CONFIGURATION, format: 'affidavit-head-attestation' }
const headerWithMore = `${block.header}00`
const strict: readonly Draft[] = [
  ...cases(invalid(['format'], ...NOTHING_CHECKED), {
    'format/configuration-with-a-format-that-is-expected': [
      'A configuration with a member format: expected, and named by the document. What is signed could be taken for a statement of another kind.',
      setAt(withRecord({ attestation: documentFor(FORMATTED) }), ['boot_configuration'], FORMATTED),
      { ...EXPECTED, configurations: [digestHex(FORMATTED)] },
    ],
  }),
  ...cases(invalid(MINED_CHECKS, OFFLINE), {
    'block-header/byte-more': [
      'A byte after the header; the hash is that of all bytes.',
      setAt(
        setAt(bundle, ['block', 'header'], headerWithMore),
        ['block', 'hash'],
        keccak256(headerWithMore),
      ),
    ],
  }),
]

const compact = JSON.stringify(bundle)
const unreadable: readonly Draft[] = cases(UNREADABLE, {
  'unreadable/member-twice': [
    'A member twice, with the same value.',
    textOf(compact.replace('"version":1,', '"version":1,"version":1,')),
  ],
  'unreadable/member-twice-escaped': [
    'A member twice, once escaped.',
    textOf(compact.replace('"version":1,', '"version":1,"\\u0076ersion":3,')),
  ],
  'unreadable/byte-order-mark': [
    'A byte order mark before the bundle.',
    textOf(`\ufeff${compact}`),
  ],
  'unreadable/lone-surrogate': [
    'Half a surrogate pair.',
    textOf(compact.replace('"boot_configuration":{', '"boot_configuration":{"x":"\\ud800",')),
  ],
  'unreadable/inexact-number': [
    'A number that canonical JSON writes otherwise.',
    textOf(
      compact.replace('"boot_configuration":{', '"boot_configuration":{"x":12345678901234567168,'),
    ),
  ],
  'unreadable/too-deep': [
    'Arrays 145 deep.',
    textOf(
      compact.replace(
        '"boot_configuration":{',
        `"boot_configuration":{"x":${'['.repeat(143)}${']'.repeat(143)},`,
      ),
    ),
  ],
  'unreadable/text-after-it': ['Something after the bundle.', textOf(`${compact}{}`)],
  'unreadable/cut': ['The last character is missing.', textOf(compact.slice(0, -1))],
})

const [redactedRequest, redactedResponse] = [
  redactBundle(bundle, { request: true }),
  redactBundle(bundle, { response: true }),
]
const answer = answerOf(record as unknown as JsonObject)
const GIVEN = { request: { json: { stop: null, ...REQUEST } }, answer: { json: answer } } as const
const exchanges: readonly Draft[] = [
  ...cases(verified(OFFLINE), {
    'exchange/same': [
      'The evidence is of the request and the answer that its caller kept.',
      bundle,
      { ...EXPECTED, ...GIVEN },
    ],
    'exchange/redacted-request-given': [
      'The request is left out, and its caller kept it: all can be checked.',
      redactedRequest,
      { ...EXPECTED, request: GIVEN.request },
    ],
    'exchange/redacted-response-given': [
      'The response is left out, and its caller kept it: all can be checked.',
      redactedResponse,
      { ...EXPECTED, answer: GIVEN.answer },
    ],
    'exchange/answer-with-a-later-head': [
      'The answer that was kept has a later head of the same log.',
      bundle,
      { ...EXPECTED, answer: { json: { ...answer, log: later.record.log as unknown as Json } } },
    ],
  }),
  ...cases(verified(OFFLINE, 'proof given'), {
    'exchange/no-proof-in-the-answer': [
      'The answer that was kept shows no proof.',
      bundle,
      { ...EXPECTED, answer: { json: RESPONSE } },
    ],
  }),
  ...cases(invalid(['request given'], OFFLINE), {
    'request-given/another': [
      'The evidence is of another request.',
      bundle,
      { ...EXPECTED, request: { json: { ...REQUEST, temperature: 0.8 } } },
    ],
  }),
  ...cases(invalid(['request given'], 'request hash', OFFLINE), {
    'request-given/another-redacted': [
      'The request that is left out is another one than was given.',
      redactedRequest,
      { ...EXPECTED, request: { json: { ...REQUEST, temperature: 0.8 } } },
    ],
  }),
  ...cases(invalid(['answer given'], OFFLINE), {
    'answer-given/another': [
      'The evidence is of another answer.',
      bundle,
      { ...EXPECTED, answer: { json: { ...answer, service_tier: 'x' } } },
    ],
  }),
  ...cases(invalid(['proof given'], OFFLINE), {
    'proof-given/another-signature': [
      'The answer that was kept has another signature than the evidence.',
      bundle,
      { ...EXPECTED, answer: { json: { ...answer, signature: malleated(record.signature) } } },
    ],
    'proof-given/log-of-another-chain': [
      'The answer that was kept has a head for another chain.',
      bundle,
      {
        ...EXPECTED,
        answer: { json: { ...answer, log: { ...record.log, chain_id: 1 } as unknown as Json } },
      },
    ],
    'proof-given/log-signed-for-another-chain': [
      'The answer that was kept has a head for another chain, which the notary signed for that chain.',
      bundle,
      {
        ...EXPECTED,
        answer: {
          json: {
            ...answer,
            log: { ...record.log, chain_id: 1, signature: signedFor(1) },
          },
        },
      },
    ],
  }),
]

/** Cases whose source is evidence; document-cases.ts has more of them. */
export const bundleCases: readonly Draft[] = [
  ...holds,
  ...open,
  ...parts,
  ...enclaves,
  ...logs,
  ...anchors,
  ...kept,
  ...forms,
  ...strict,
  ...unreadable,
  ...exchanges,
]

function booted(
  name: string,
  boot: JsonObject,
  about: string,
  failed: readonly string[],
): readonly Draft[] {
  const demands = { ...EXPECTED, configurations: [digestHex(boot)] }
  return cases(invalid(failed, OFFLINE), { [name]: [about, built({ boot }), demands] })
}

function digestHex(boot: JsonObject): string {
  return encodeHex(new Uint8Array(digestOf(boot)))
}

function onChain(
  name: string,
  about: string,
  chain: NonNullable<DraftDemands['chain']>,
  confirmations?: number,
): readonly Draft[] {
  const demands = { ...EXPECTED, chain, ...(confirmations === undefined ? {} : { confirmations }) }
  const expect = confirmations === undefined ? invalid([OFFLINE]) : incomplete(OFFLINE)
  return cases(expect, {
    [`block-on-chain/${name}`]: [about, bundle, demands],
  })
}

/** The bundle with this signature of its head, also in its transaction. */
function signedHead(signature: string): EvidenceBundle {
  const log = { ...record.log, signature }
  return built({ stored: { log: log as unknown as Json }, transaction: signAnchor(log) })
}

/** The notary's signature of the head, for another chain. */
function signedFor(chainId: number): string {
  const { size, root, contract } = record.log
  const domain = { name: 'Affidavit', version: '1', chainId, verifyingContract: contract }
  const types = {
    TreeHead: [
      { name: 'size', type: 'uint64' },
      { name: 'root', type: 'bytes32' },
    ],
  }
  const digest = TypedDataEncoder.hash(domain, types, { size, root: `0x${root}` })
  return NOTARY.signingKey.sign(digest).serialized
}

function answerOf({ request: _, response, created_at: __, ...proof }: JsonObject): JsonObject {
  return { ...(response as JsonObject), ...proof }
}

/** A request whose completion's signature has this v. */
function ofV(v: number): JsonObject {
  for (let seed = 1; seed < 64; seed++) {
    const request = { ...REQUEST, seed }
    const { signature } = built({ record: { request } }).record
    if (signature.endsWith(v.toString(16))) return request
  }
  throw new Error(`expected a signature with v ${v}`)
}

/**
 * The same value with members in reverse order, other white space, every `e` of a text escaped, and
 * numbers times 1e0.
 */
function rewritten(value: EvidenceBundle): Content {
  const write = (json: unknown): string => {
    if (typeof json === 'string') return JSON.stringify(json).replaceAll('e', '\\u0065')
    if (Array.isArray(json)) return `[ ${json.map(write).join(' ,\n\t')} ]`
    if (typeof json === 'object' && json !== null)
      return `{\r\n${Object.entries(json)
        .toReversed()
        .map(
          ([name, member]) =>
            `${write(name)} : ${name === 'created_at' ? `${member}.0e0` : write(member)}`,
        )
        .join(',')}}`
    return JSON.stringify(json)
  }
  return { bytes: Buffer.from(write(value)), extension: 'json' }
}
