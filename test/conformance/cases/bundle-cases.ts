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
import { moveBlock } from '../../attestation/evidence/move-block.ts'
import { removeAt } from '../../attestation/mutate-json.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { VECTORS } from '../manifest.ts'
import {
  CONFIGURATION,
  type Content,
  consistent,
  type Draft,
  type DraftDemands,
  EXPECTED,
  invalid,
  OFFLINE,
  pemOf,
  setAt,
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

type Outcome = Pick<Draft, 'about' | 'expect'>

function draft(
  name: string,
  source: Json | Content,
  { about, expect }: Outcome,
  demands: DraftDemands = EXPECTED,
): Draft {
  const content = isContent(source) ? source : { json: source }
  return { name: `bundle/${name}`, about, kind: 'bundle', source: content, demands, expect }
}

function isContent(source: Json | Content): source is Content {
  return typeof source === 'object' && source !== null && ('path' in source || 'bytes' in source)
}

/** A case that fails exactly these checks; all other parts are correct. */
function fails(
  name: string,
  source: Json | Content,
  {
    about,
    failed,
    open = [OFFLINE],
  }: {
    readonly about: string
    readonly failed: readonly string[]
    readonly open?: readonly string[]
  },
  demands: DraftDemands = EXPECTED,
): Draft {
  return draft(name, source, { about, expect: invalid(failed, ...open) }, demands)
}

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

const published = (name: string): readonly [Content, DraftDemands, JsonObject] => {
  const text = readFileSync(join(VECTORS, `evidence/${name}/bundle.json`), 'utf8')
  const folder = name === 'old-anchor' ? 'first' : name
  const expected = JSON.parse(
    readFileSync(join(VECTORS, `evidence/${folder}/expected.json`), 'utf8'),
  )
  const own: EvidenceBundle = JSON.parse(text)
  const { cabundle } = decodeAttestationPayload(decodeBase64(own.record.attestation))
  const root = cabundle[0] ?? new Uint8Array()
  const demands = {
    roots: [pemOf(root)],
    pcrs: expected.measurements,
    configurations: expected.configurations,
  }
  return [{ path: `evidence/${name}/bundle.json` }, demands, expected.chain]
}

const [first, firstDemands] = published('first')
const [second, secondDemands, secondChain] = published('second')
const [oldAnchor, oldAnchorDemands] = published('old-anchor')
const chainOf = (chain: JsonObject, number: number) => ({
  chain_id: Number(chain.chainId),
  newest_block: Number(chain.newestBlock),
  blocks: { [number]: String(chain.blockHash) },
})

const cut = (outcome: 'client_disconnected' | 'upstream_error') =>
  built({ record: { receipt: { outcome } } })

const holds: readonly Draft[] = [
  draft(
    'version-1',
    first,
    {
      about: 'A bundle of version 1, anchored by a real (local) chain.',
      expect: verified(OFFLINE),
    },
    firstDemands,
  ),
  draft(
    'version-2',
    second,
    {
      about: 'A bundle of version 2, anchored by a real (local) chain.',
      expect: verified(OFFLINE),
    },
    secondDemands,
  ),
  draft(
    'version-2-with-its-chain',
    second,
    { about: 'The same, and a chain that has its block.', expect: verified() },
    { ...secondDemands, chain: chainOf(secondChain, secondBlockNumber()) },
  ),
  draft(
    'reanchored',
    { path: 'evidence/second/reanchored.json' },
    {
      about: 'The head was anchored again: the mined transaction is the second of reanchored.',
      expect: verified(OFFLINE),
    },
    secondDemands,
  ),
  draft('whole', bundle, {
    about:
      'A bundle of version 3 in a block of six transactions: what the cases that fail are changed from.',
    expect: verified(OFFLINE),
  }),
  draft('receipt-of-version-2', built({ record: { version: 2 } }), {
    about: 'A receipt of version 2, in a bundle of version 2.',
    expect: verified(OFFLINE),
  }),
  draft('receipt-of-version-1', built({ record: { version: 1 } }), {
    about: 'A receipt of version 1, in a bundle of version 1.',
    expect: verified(OFFLINE),
  }),
  draft('alone-in-its-block', built({ neighbours: [0, 0] }), {
    about: 'Both tries have one leaf, whose key is the RLP of 0.',
    expect: verified(OFFLINE),
  }),
  draft('first-in-its-block', built({ neighbours: [0, 130] }), {
    about: 'Index 0, whose key 0x80 shares nibbles with that of index 128.',
    expect: verified(OFFLINE),
  }),
  draft('deep-in-its-block', built({ neighbours: [200, 100] }), {
    about: 'Index 200: a key of two bytes.',
    expect: verified(OFFLINE),
  }),
  draft('alone-in-its-log', built({ record: { before: 0, after: 0 } }), {
    about: 'A log of one leaf: the path is empty.',
    expect: verified(OFFLINE),
  }),
  draft('last-in-its-log', built({ record: { before: 6, after: 0 } }), {
    about: 'The last leaf of seven: a path shorter than the height of the tree.',
    expect: verified(OFFLINE),
  }),
  draft('written-otherwise', rewritten(bundle), {
    about:
      'The same values as text: other order of members, escapes, white space, created_at as a number with an exponent.',
    expect: verified(OFFLINE),
  }),
  draft('block-60-seconds-older', moveBlock(bundle, Math.ceil((FINISHED_AT - 60_000) / 1000)), {
    about: 'The clocks of block and enclave may differ by 60 s.',
    expect: verified(OFFLINE),
  }),
  draft(
    'finished-60-seconds-before-its-document',
    built({ document: { timestamp: FINISHED_AT + 60_000 } }),
    {
      about: 'The clocks of enclave and security module may differ by 60 s.',
      expect: verified(OFFLINE),
    },
  ),
  draft(
    'finished-in-the-last-millisecond-of-the-leaf',
    built({ record: { receipt: { finished_at: MADE_AT.getTime() + 2 * 3600_000 } } }),
    {
      about: 'notAfter times 1000 is the last millisecond that counts.',
      expect: verified(OFFLINE),
    },
  ),
  draft(
    'three-confirmations',
    bundle,
    {
      about: 'The block is three deep, itself included, and three are demanded.',
      expect: verified(),
    },
    {
      ...EXPECTED,
      chain: { chain_id: CHAIN_ID, newest_block: block.number + 2, blocks: blockOnChain },
      confirmations: 3,
    },
  ),
  draft('second-attempt', built({ record: { receipt: { attempt: 2 } } }), {
    about: 'A second attempt is reported, and fails no check.',
    expect: verified(OFFLINE),
  }),
  draft(
    'members-the-interface-does-not-know',
    built({
      record: {
        request: { ...REQUEST, vendor: { a: [1, null] } },
        response: { ...RESPONSE, vendor: -0.5 },
      },
    }),
    {
      about: 'Unknown members are hashed like all others; null inside them stays.',
      expect: verified(OFFLINE),
    },
  ),
]

const open: readonly Draft[] = [
  draft(
    'nothing-expected',
    bundle,
    {
      about: 'Neither measurements nor a configuration are expected.',
      expect: consistent('measurements', 'expected configuration', OFFLINE),
    },
    { roots: EXPECTED.roots ?? [] },
  ),
  draft(
    'any-measurement',
    bundle,
    {
      about: 'Any code is accepted, so that the code is not checked.',
      expect: consistent('measurements', OFFLINE),
    },
    { roots: EXPECTED.roots ?? [], configurations: [CONFIGURATION], any_measurement: true },
  ),
  draft(
    'no-configuration-expected',
    bundle,
    {
      about: 'No configuration is expected.',
      expect: consistent('expected configuration', OFFLINE),
    },
    { roots: EXPECTED.roots ?? [], pcrs: EXPECTED.pcrs ?? {} },
  ),
  draft('unmined', built({ isMined: false }), {
    about: 'Made before the anchor was mined.',
    expect: consistent(...MINED_CHECKS, OFFLINE),
  }),
  ...(['not_mined', 'not_read', 'not_readable'] as const).map((reason) =>
    draft(`without-block-${reason}`, withoutBlock({ reason }), {
      about: 'The gateway says why there is no block, which nothing binds.',
      expect: consistent(...MINED_CHECKS, OFFLINE),
    }),
  ),
  draft('with-source', withSource(SOURCE), {
    about: 'The bundle says where it is from, which nothing binds: the verdict is the same.',
    expect: verified(OFFLINE),
  }),
  draft(
    'with-source-and-nothing-expected',
    withSource(SOURCE),
    {
      about: 'The bundle names a list of releases, from which no expectation is taken.',
      expect: consistent('measurements', 'expected configuration', OFFLINE),
    },
    { roots: EXPECTED.roots ?? [] },
  ),
  ...(['client_disconnected', 'upstream_error'] as const).flatMap((outcome) => [
    draft(`cut-${outcome}`, cut(outcome), {
      about: 'The answer was cut.',
      expect: consistent('outcome', OFFLINE),
    }),
    draft(
      `cut-${outcome}-accepted`,
      cut(outcome),
      { about: 'The answer was cut, and the checker takes it so.', expect: verified(OFFLINE) },
      { ...EXPECTED, allow_outcomes: [outcome] },
    ),
  ]),
  draft(
    'cut-another-outcome-accepted',
    cut('upstream_error'),
    {
      about: 'The checker takes answers that were cut otherwise.',
      expect: consistent('outcome', OFFLINE),
    },
    { ...EXPECTED, allow_outcomes: ['client_disconnected'] },
  ),
  draft('redacted-request', redactBundle(bundle, { request: true }), {
    about: 'The request is left out.',
    expect: consistent('request hash', OFFLINE),
  }),
  draft('redacted-response', redactBundle(bundle, { response: true }), {
    about: 'The response is left out.',
    expect: consistent('response hash', OFFLINE),
  }),
  draft('redacted-both', redactBundle(bundle, { request: true, response: true }), {
    about: 'Both parts are left out.',
    expect: consistent('request hash', 'response hash', OFFLINE),
  }),
]

const parts: readonly Draft[] = [
  fails(
    'request-hash/of-another-request',
    built({ record: { receipt: { request_hash: 'ab'.repeat(32) } } }),
    {
      about:
        'The enclave logged a receipt with another request_hash. By the rules the check receipt fails with it.',
      failed: ['request hash', 'receipt'],
    },
  ),
  fails(
    'request-hash/redacted',
    {
      ...redactBundle(bundle, { request: true }),
      record: { ...redactBundle(bundle, { request: true }).record, request_hash: 'ab'.repeat(32) },
    } as Json,
    {
      about: 'The hash in place of the request is another one.',
      failed: ['request hash', 'hash', 'signature', 'receipt'],
    },
  ),
  fails('request-changed', setAt(bundle, ['record', 'request', 'temperature'], 0.8), {
    about: 'The request was changed.',
    failed: ['request hash', 'hash', 'signature', 'receipt'],
  }),
  fails(
    'response-hash/proof-member',
    withRecord({ response: { ...RESPONSE, tx_hash: OTHER_HASH } }),
    {
      about: 'The response has a member tx_hash, which is not hashed: it was put there unsigned.',
      failed: ['response hash'],
    },
  ),
  fails(
    'response-changed',
    setAt(bundle, ['record', 'response', 'choices', 0, 'message', 'content'], 'klein'),
    {
      about: 'The response was changed.',
      failed: ['response hash', 'hash', 'signature', 'receipt'],
    },
  ),
  fails(
    'response-of-another-completion',
    {
      ...other,
      record: {
        ...record,
        receipt: other.record.receipt,
        log: other.record.log,
        tx_hash: other.record.tx_hash,
      },
    } as unknown as Json,
    {
      about: 'Receipt, log and anchor are of another completion of the same notary.',
      failed: ['response hash', 'receipt'],
    },
  ),
  fails('hash/another', withRecord({ hash: 'ab'.repeat(32) }), {
    about: "The record's hash is another one; signature and receipt are of the right one.",
    failed: ['hash'],
  }),
  fails(
    'public-key/no-point',
    setAt(
      setAt(bundle, ['record', 'public_key'], offCurve(record.public_key)),
      ['record', 'attestation'],
      documentFor(BOOT_CONFIGURATION, {
        public_key: Buffer.from(offCurve(record.public_key).slice(2), 'hex'),
      }),
    ),
    {
      about:
        'No point of the curve, and the document names it. What needs its address fails with it.',
      failed: ['public key', 'signature', 'tree head', 'anchor outcome'],
    },
  ),
  fails(
    'signature/of-another-key',
    withRecord({ signature: STRANGER.signMessageSync(Buffer.from(record.hash, 'hex')) }),
    { about: 'Another account signed the hash.', failed: ['signature'] },
  ),
  fails('signature/high-s', withRecord({ signature: malleated(record.signature) }), {
    about: 'The second form that the same signature has.',
    failed: ['signature'],
  }),
  fails(
    'signature/of-the-hash-as-text',
    withRecord({ signature: NOTARY.signMessageSync(record.hash) }),
    { about: 'Over the 64 hex digits in place of the 32 bytes.', failed: ['signature'] },
  ),
  fails(
    'signature/without-prefix',
    withRecord({ signature: NOTARY.signingKey.sign(`0x${record.hash}`).serialized }),
    { about: 'Over the hash itself, without the prefix of EIP-191.', failed: ['signature'] },
  ),
  ...[27, 28].map((v) => {
    const signed = built({ record: { request: ofV(v) } })
    const signature = `${signed.record.signature.slice(0, -2)}0${v - 27}`
    return fails(`signature/v-of-${v - 27}`, setAt(signed, ['record', 'signature'], signature), {
      about: `v is ${v - 27} in place of ${v}.`,
      failed: ['signature'],
    })
  }),
  fails('receipt/of-another-hash', built({ record: { receipt: { hash: 'ab'.repeat(32) } } }), {
    about: 'The enclave logged a receipt with another hash.',
    failed: ['receipt'],
  }),
  fails(
    'receipt/of-another-requested-model',
    built({
      record: { receipt: { model: { requested: 'demo/other', returned: 'demo/echo-2025' } } },
    }),
    { about: "model.requested is not the request's model.", failed: ['receipt'] },
  ),
  fails(
    'receipt/of-another-returned-model',
    built({ record: { receipt: { model: { requested: 'demo/echo', returned: 'demo/echo' } } } }),
    { about: "model.returned is not the response's model.", failed: ['receipt'] },
  ),
  fails('receipt/of-a-stream', built({ record: { streamHash: 'ab'.repeat(32) } }), {
    about: 'A stream_hash, of a request that asked for no stream.',
    failed: ['receipt'],
  }),
  fails('receipt/of-no-stream', built({ record: { request: { ...REQUEST, stream: true } } }), {
    about: 'No stream_hash, of a request that asked for a stream.',
    failed: ['receipt'],
  }),
  fails('created-at/a-second-later', withRecord({ created_at: record.created_at + 1 }), {
    about: 'created_at is not finished_at in whole seconds.',
    failed: ['created_at'],
  }),
]

const enclaves: readonly Draft[] = [
  fails('attestation-key/of-another-notary', built({ document: { public_key: foreignKey() } }), {
    about: 'A genuine document of the expected code, over another key.',
    failed: ['attestation key'],
  }),
  fails('attestation-key/none', built({ document: { public_key: null } }), {
    about: 'A genuine document over no key.',
    failed: ['attestation key'],
  }),
  fails(
    'attestation-document/under-aws-root',
    bundle,
    {
      about: "A document under a development root, checked under AWS's root.",
      failed: ['attestation document'],
      open: ['attestation time', 'measurements', OFFLINE],
    },
    { pcrs: EXPECTED.pcrs ?? {}, configurations: [CONFIGURATION] },
  ),
  fails(
    'attestation-time/finished-after-the-leaf',
    built({ record: { receipt: { finished_at: MADE_AT.getTime() + 2 * 3600_000 + 1 } } }),
    {
      about: 'The completion finished a millisecond after the leaf ended.',
      failed: ['attestation time'],
    },
  ),
  fails(
    'attestation-time/finished-before-the-document',
    built({ document: { timestamp: FINISHED_AT + 60_001 } }),
    {
      about: 'The document was made 60.001 s after the completion finished.',
      failed: ['attestation time'],
    },
  ),
  fails(
    'measurements/of-other-code',
    bundle,
    { about: 'A genuine document of other code than is expected.', failed: ['measurements'] },
    { ...EXPECTED, pcrs: { ...EXPECTED.pcrs, 0: 'ab'.repeat(48) } },
  ),
  fails(
    'measurements/one-of-three-differs',
    bundle,
    { about: 'Two of three measurements are the expected ones.', failed: ['measurements'] },
    { ...EXPECTED, pcrs: { ...EXPECTED.pcrs, 2: 'ab'.repeat(48) } },
  ),
  fails(
    'measurements/one-is-missing',
    bundle,
    { about: 'A PCR is expected that the document does not have.', failed: ['measurements'] },
    { ...EXPECTED, pcrs: { ...EXPECTED.pcrs, 20: 'ab'.repeat(48) } },
  ),
  fails(
    'measurements/zeros',
    bundle,
    { about: 'Zeros satisfy no expectation.', failed: ['measurements'] },
    { ...EXPECTED, pcrs: { ...EXPECTED.pcrs, 20: '00'.repeat(48) } },
  ),
  fails(
    'boot-configuration/of-another',
    built({ stored: { attestation: documentFor({ ...BOOT_CONFIGURATION, ca_sha256: '' }) } }),
    {
      about:
        'The document names another configuration than the bundle shows, which is the expected one.',
      failed: ['boot configuration'],
    },
  ),
  fails('boot-configuration/none', built({ document: { user_data: null } }), {
    about: 'The document names no configuration.',
    failed: ['boot configuration'],
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
  fails(
    'expected-configuration/another',
    bundle,
    { about: 'Another configuration is expected.', failed: ['expected configuration'] },
    { ...EXPECTED, configurations: ['ab'.repeat(32)] },
  ),
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
  fails(
    'receipt-in-log/attempt-changed',
    withRecord({ receipt: { ...record.receipt, attempt: 2 } as unknown as Json }),
    {
      about: 'A member of the receipt was changed that nothing but the leaf binds.',
      failed: ['receipt in log'],
    },
  ),
  fails(
    'receipt-in-log/provider-origin-added',
    withRecord({
      receipt: { ...record.receipt, received_hash: 'ab'.repeat(32) } as unknown as Json,
    }),
    { about: 'The hash of what the provider sent was changed.', failed: ['receipt in log'] },
  ),
  fails(
    'receipt-in-log/another-index',
    withRecord({ receipt: { ...record.receipt, index: 4 } as unknown as Json }),
    { about: 'The receipt says another index.', failed: ['receipt in log'] },
  ),
  fails(
    'receipt-in-log/index-beyond-the-log',
    built({
      record: { receipt: { index: 5 } },
      stored: { receipt: { ...record.receipt, index: 99 } as unknown as Json },
    }),
    { about: 'The index is not below the size.', failed: ['receipt in log'] },
  ),
  fails(
    'receipt-in-log/path-too-long',
    setAt(bundle, ['record', 'log', 'path'], [...record.log.path, 'ab'.repeat(32)]),
    { about: 'A hash too many in the path.', failed: ['receipt in log'] },
  ),
  fails(
    'receipt-in-log/path-too-short',
    setAt(bundle, ['record', 'log', 'path'], record.log.path.slice(0, -1)),
    { about: 'A hash too few in the path.', failed: ['receipt in log'] },
  ),
  fails(
    'tree-head/of-another-notary',
    signedHead(`0x${STRANGER.signingKey.sign(OTHER_HASH).serialized.slice(2)}`),
    {
      about: 'Another account signed the head, which was anchored as such.',
      failed: ['tree head'],
    },
  ),
  fails('tree-head/high-s', signedHead(malleated(record.log.signature)), {
    about: 'The second form of the signature, which was anchored as such.',
    failed: ['tree head'],
  }),
  fails(
    'log-of-a-later-head',
    setAt(bundle, ['record', 'log'], later.record.log as unknown as Json),
    {
      about: 'A later head of the same log, right in itself, with the anchor of the earlier.',
      failed: ['anchor', 'anchor outcome'],
    },
  ),
]

const anchors: readonly Draft[] = [
  fails('transaction-hash/another', withRecord({ tx_hash: OTHER_HASH }), {
    about: 'tx_hash is that of another transaction.',
    failed: ['transaction hash'],
  }),
  fails(
    'transaction-hash/not-among-reanchored',
    withRecord({ tx_hash: OTHER_HASH, reanchored: [`0x${'cd'.repeat(32)}`] }),
    {
      about: 'Neither tx_hash nor reanchored names the transaction.',
      failed: ['transaction hash'],
    },
  ),
  fails('anchor/on-another-chain', built({ anchor: { chainId: 1 } }), {
    about: 'The transaction is for another chain.',
    failed: ['anchor'],
  }),
  fails('anchor/to-another-contract', built({ anchor: { contract: OTHER_CONTRACT } }), {
    about: 'The transaction calls another contract.',
    failed: ['anchor'],
  }),
  fails('anchor/of-another-size', built({ anchor: { size: 10 } }), {
    about: 'The transaction brings another size.',
    failed: ['anchor'],
  }),
  fails('anchor/of-another-root', built({ anchor: { root: new Uint8Array(32) } }), {
    about: 'The transaction brings another root.',
    failed: ['anchor'],
  }),
  fails(
    'anchor/with-another-signature',
    built({
      anchor: {
        signature: new Uint8Array(
          Buffer.from(STRANGER.signingKey.sign(OTHER_HASH).serialized.slice(2), 'hex'),
        ),
      },
    }),
    { about: 'The transaction brings another signature.', failed: ['anchor'] },
  ),
  fails('anchor/no-transaction', built({ transaction: `0x02${'c0'.repeat(40)}` }), {
    about: 'Bytes that are no transaction, though tx_hash is their hash and the block holds them.',
    failed: ['anchor'],
  }),
  fails('block-header/another-number', setAt(bundle, ['block', 'number'], block.number + 1), {
    about: "The block's number is not its header's.",
    failed: ['block header'],
  }),
  fails('block-header/another-hash', setAt(bundle, ['block', 'hash'], OTHER_HASH), {
    about: "The block's hash is not its header's.",
    failed: ['block header'],
  }),
  fails(
    'anchor-time/older-than-the-completion',
    moveBlock(bundle, Math.ceil((FINISHED_AT - 60_000) / 1000) - 1),
    { about: 'The block is more than 60 s older than the completion.', failed: ['anchor time'] },
  ),
  fails(
    'anchor-time/older-than-the-document',
    moveBlock(
      built({ document: { timestamp: FINISHED_AT + 50_000 } }),
      Math.ceil((FINISHED_AT - 10_000) / 1000) - 1,
    ),
    {
      about:
        'The block is more than 60 s older than the document, and not so much older than the completion.',
      failed: ['anchor time'],
    },
  ),
  fails(
    'anchor-time/an-hour-older',
    oldAnchor,
    { about: 'A made-up block, an hour older than the completion.', failed: ['anchor time'] },
    oldAnchorDemands,
  ),
  fails(
    'transaction-in-block/another',
    { ...bundle, block: built({ anchor: { nonce: 8 } }).block } as unknown as Json,
    {
      about: 'The block holds another transaction of the same call, which succeeded.',
      failed: ['transaction in block'],
    },
  ),
  fails(
    'transaction-in-block/another-place',
    setAt(
      bundle,
      ['block', 'transaction_proof'],
      (built({ neighbours: [6, 19] }).block?.transaction_proof ?? []) as Json,
    ),
    { about: 'The proof is of another place in another trie.', failed: ['transaction in block'] },
  ),
  fails(
    'transaction-in-block/node-too-many',
    setAt(
      bundle,
      ['block', 'transaction_proof'],
      [...block.transaction_proof, block.transaction_proof.at(-1) ?? ''],
    ),
    { about: 'A node more than the proof needs.', failed: ['transaction in block'] },
  ),
  fails('anchor-outcome/reverted', built({ status: 0 }), {
    about: 'The transaction reverted.',
    failed: ['anchor outcome'],
  }),
  fails('anchor-outcome/no-event', built({ events: [] }), {
    about: 'No contract said that it took the head.',
    failed: ['anchor outcome'],
  }),
  fails(
    'anchor-outcome/event-of-another-contract',
    built({ events: [{ ...anchoredEvent(record.log), address: OTHER_CONTRACT }] }),
    { about: 'Another contract said that it took the head.', failed: ['anchor outcome'] },
  ),
  fails(
    'anchor-outcome/event-of-another-head',
    built({ events: [anchoredEvent(later.record.log)] }),
    { about: 'The contract took another head.', failed: ['anchor outcome'] },
  ),
  fails(
    'anchor-outcome/event-of-another-notary',
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
    { about: 'The contract took a head of another notary.', failed: ['anchor outcome'] },
  ),
  fails(
    'anchor-outcome/receipt-of-another-place',
    setAt(
      bundle,
      ['block', 'receipt_proof'],
      (built({ neighbours: [6, 19] }).block?.receipt_proof ?? []) as Json,
    ),
    { about: 'The proof is of another place in another trie.', failed: ['anchor outcome'] },
  ),
  fails(
    'anchor-outcome/receipt-of-a-neighbour',
    setAt(built({ status: 0 }), ['block', 'transaction_index'], 1),
    {
      about: 'The place of a neighbour that succeeded, in place of one that reverted.',
      failed: ['transaction in block', 'anchor outcome'],
    },
  ),
  ...onChain('another-chain', 'The endpoint serves another chain.', {
    chain_id: 1,
    newest_block: block.number + 9,
    blocks: blockOnChain,
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
const forms: readonly Draft[] = (
  [
    [
      'member-more',
      { ...bundle, note: 'x' },
      'A member of the bundle that the format does not have.',
    ],
    [
      'record-member-more',
      setAt(bundle, ['record', 'id'], 'x'),
      "The record's id, which nothing binds.",
    ],
    [
      'log-member-more',
      setAt(bundle, ['record', 'log', 'note'], 'x'),
      'A member of the log that it does not have.',
    ],
    [
      'block-member-more',
      setAt(bundle, ['block', 'note'], 'x'),
      'A member of the block that it does not have.',
    ],
    ['another-version', { ...bundle, version: 4 }, 'A version that does not exist.'],
    [
      'version-of-another-receipt',
      { ...bundle, version: 2 },
      'The version is not that of the receipt.',
    ],
    [
      'another-format',
      { ...bundle, format: 'affidavit-evidence-bundle-2' },
      'A format that does not exist.',
    ],
    [
      'hex-in-upper-case',
      setAt(bundle, ['record', 'tx_hash'], record.tx_hash.toUpperCase().replace('0X', '0x')),
      'Hex in upper case.',
    ],
    [
      'hex-without-prefix',
      setAt(bundle, ['transaction'], bundle.transaction.slice(2)),
      'Hex without 0x.',
    ],
    [
      'base64-without-padding',
      setAt(bundle, ['record', 'attestation'], record.attestation.replace(/=+$/, '').concat('\n')),
      'A line feed after the document, and no padding.',
    ],
    [
      'null-in-the-request',
      setAt(bundle, ['record', 'request', 'stop'], null),
      'A member of null in the request, which is not hashed.',
    ],
    [
      'request-and-its-hash',
      setAt(bundle, ['record', 'request_hash'], record.receipt.request_hash),
      'A request and its hash together.',
    ],
    [
      'response-and-its-hash',
      setAt(bundle, ['record', 'response_hash'], record.receipt.response_hash),
      'A response and its hash together.',
    ],
    ['no-block-member', removeAt(bundle, ['block']), 'Block is missing, in place of null.'],
    [
      'empty-reanchored',
      setAt(bundle, ['record', 'reanchored'], []),
      'reanchored is there, and names nothing.',
    ],
    [
      'no-block-beside-a-block',
      { ...bundle, no_block: withoutBlock({}).no_block } as unknown as Json,
      'no_block, and a block.',
    ],
    [
      'no-block-of-an-unknown-reason',
      withoutBlock({ reason: 'lost' }),
      'no_block with a reason that is none of the three.',
    ],
    [
      'no-block-of-another-transaction',
      withoutBlock({ transaction: OTHER_HASH }),
      'no_block names a transaction that the record does not.',
    ],
    [
      'no-block-in-version-2',
      {
        ...built({ isMined: false, record: { version: 2 } }),
        no_block: withoutBlock({}).no_block,
      } as unknown as Json,
      'Bundles of version 2 have no no_block.',
    ],
    ['source-of-no-member', withSource({}), 'The source has no member.'],
    [
      'source-with-one-more-member',
      withSource({ ...SOURCE, expect: 'https://gateway.example/expect.json' }),
      'The source has a member that the format does not name.',
    ],
    [
      'source-of-a-script',
      withSource({ gateway: 'javascript:alert(1)' }),
      'The gateway of the source has neither http nor https.',
    ],
    [
      'source-with-a-user',
      withSource({ gateway: 'https://gateway.example@other.example' }),
      'The gateway of the source has a user before its host.',
    ],
    [
      'source-with-a-terminal-escape',
      withSource({ operator: 'Example\u001b[2J' }),
      'The operator of the source has a control character.',
    ],
    [
      'source-in-version-2',
      { ...built({ record: { version: 2 } }), source: SOURCE } as unknown as Json,
      'Bundles of version 2 have no source.',
    ],
    [
      'configuration-with-a-format',
      setAt(bundle, ['boot_configuration', 'format'], 'affidavit-head-attestation'),
      'The boot configuration has a member format, and the document does not state that configuration.',
    ],
  ] as readonly (readonly [string, Json, string])[]
).map(([name, json, about]) =>
  fails(`format/${name}`, json, { about, failed: ['format'], open: NOTHING_CHECKED }),
)

const FORMATTED = { ...BOOT_CONFIGURATION, format: 'affidavit-head-attestation' }
const headerWithMore = `${block.header}00`
const strict: readonly Draft[] = [
  fails(
    'format/configuration-with-a-format-that-is-expected',
    setAt(withRecord({ attestation: documentFor(FORMATTED) }), ['boot_configuration'], FORMATTED),
    {
      about:
        'A configuration with a member format: expected, and named by the document. What is signed could be taken for a statement of another kind.',
      failed: ['format'],
      open: NOTHING_CHECKED,
    },
    { ...EXPECTED, configurations: [digestHex(FORMATTED)] },
  ),
  fails(
    'block-header/byte-more',
    setAt(
      setAt(bundle, ['block', 'header'], headerWithMore),
      ['block', 'hash'],
      keccak256(headerWithMore),
    ),
    { about: 'A byte after the header; the hash is that of all bytes.', failed: MINED_CHECKS },
  ),
]

const compact = JSON.stringify(bundle)
const unreadable: readonly Draft[] = (
  [
    [
      'member-twice',
      compact.replace('"version":3,', '"version":3,"version":3,'),
      'A member twice, with the same value.',
    ],
    [
      'member-twice-escaped',
      compact.replace('"version":3,', '"version":3,"\\u0076ersion":3,'),
      'A member twice, once escaped.',
    ],
    ['byte-order-mark', `\ufeff${compact}`, 'A byte order mark before the bundle.'],
    [
      'lone-surrogate',
      compact.replace('"boot_configuration":{', '"boot_configuration":{"x":"\\ud800",'),
      'Half a surrogate pair.',
    ],
    [
      'inexact-number',
      compact.replace('"boot_configuration":{', '"boot_configuration":{"x":12345678901234567168,'),
      'A number that canonical JSON writes otherwise.',
    ],
    [
      'too-deep',
      compact.replace(
        '"boot_configuration":{',
        `"boot_configuration":{"x":${'['.repeat(143)}${']'.repeat(143)},`,
      ),
      'Arrays 145 deep.',
    ],
    ['text-after-it', `${compact}{}`, 'Something after the bundle.'],
    ['cut', compact.slice(0, -1), 'The last character is missing.'],
  ] as const
).map(([name, text, about]) =>
  draft(
    `unreadable/${name}`,
    { bytes: Buffer.from(text), extension: 'json' },
    { about, expect: UNREADABLE },
  ),
)

const [redactedRequest, redactedResponse] = [
  redactBundle(bundle, { request: true }),
  redactBundle(bundle, { response: true }),
]
const answer = answerOf(record as unknown as JsonObject)
const GIVEN = { request: { json: { stop: null, ...REQUEST } }, answer: { json: answer } } as const
const exchanges: readonly Draft[] = [
  draft(
    'exchange/same',
    bundle,
    {
      about: 'The evidence is of the request and the answer that its caller kept.',
      expect: verified(OFFLINE),
    },
    { ...EXPECTED, ...GIVEN },
  ),
  draft(
    'exchange/redacted-request-given',
    redactedRequest,
    {
      about: 'The request is left out, and its caller kept it: all can be checked.',
      expect: verified(OFFLINE),
    },
    { ...EXPECTED, request: GIVEN.request },
  ),
  draft(
    'exchange/redacted-response-given',
    redactedResponse,
    {
      about: 'The response is left out, and its caller kept it: all can be checked.',
      expect: verified(OFFLINE),
    },
    { ...EXPECTED, answer: GIVEN.answer },
  ),
  draft(
    'exchange/no-proof-in-the-answer',
    bundle,
    { about: 'The answer that was kept shows no proof.', expect: verified(OFFLINE, 'proof given') },
    { ...EXPECTED, answer: { json: RESPONSE } },
  ),
  draft(
    'exchange/answer-with-a-later-head',
    bundle,
    {
      about: 'The answer that was kept has a later head of the same log.',
      expect: verified(OFFLINE),
    },
    { ...EXPECTED, answer: { json: { ...answer, log: later.record.log as unknown as Json } } },
  ),
  fails(
    'request-given/another',
    bundle,
    { about: 'The evidence is of another request.', failed: ['request given'] },
    { ...EXPECTED, request: { json: { ...REQUEST, temperature: 0.8 } } },
  ),
  fails(
    'request-given/another-redacted',
    redactedRequest,
    {
      about: 'The request that is left out is another one than was given.',
      failed: ['request given'],
      open: ['request hash', OFFLINE],
    },
    { ...EXPECTED, request: { json: { ...REQUEST, temperature: 0.8 } } },
  ),
  fails(
    'answer-given/another',
    bundle,
    { about: 'The evidence is of another answer.', failed: ['answer given'] },
    { ...EXPECTED, answer: { json: { ...answer, service_tier: 'x' } } },
  ),
  fails(
    'proof-given/another-signature',
    bundle,
    {
      about: 'The answer that was kept has another signature than the evidence.',
      failed: ['proof given'],
    },
    { ...EXPECTED, answer: { json: { ...answer, signature: malleated(record.signature) } } },
  ),
  fails(
    'proof-given/log-of-another-chain',
    bundle,
    { about: 'The answer that was kept has a head for another chain.', failed: ['proof given'] },
    {
      ...EXPECTED,
      answer: { json: { ...answer, log: { ...record.log, chain_id: 1 } as unknown as Json } },
    },
  ),
  fails(
    'proof-given/log-signed-for-another-chain',
    bundle,
    {
      about:
        'The answer that was kept has a head for another chain, which the notary signed for that chain.',
      failed: ['proof given'],
    },
    {
      ...EXPECTED,
      answer: {
        json: {
          ...answer,
          log: { ...record.log, chain_id: 1, signature: signedFor(1) } as unknown as Json,
        },
      },
    },
  ),
]

/** Cases whose source is an evidence bundle; document-cases.ts has more of them. */
export const bundleCases: readonly Draft[] = [
  ...holds,
  ...open,
  ...parts,
  ...enclaves,
  ...logs,
  ...anchors,
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
  const configurations = [digestHex(boot)]
  return [fails(name, built({ boot }), { about, failed }, { ...EXPECTED, configurations })]
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
  return [
    fails(
      `block-on-chain/${name}`,
      bundle,
      { about, failed: ['block on chain'], open: [] },
      {
        ...EXPECTED,
        chain,
        ...(confirmations === undefined ? {} : { confirmations }),
      },
    ),
  ]
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

function secondBlockNumber(): number {
  const text = readFileSync(join(VECTORS, 'evidence/second/bundle.json'), 'utf8')
  return JSON.parse(text).block.number
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
