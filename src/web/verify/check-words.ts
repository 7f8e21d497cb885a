import type { ExchangeCheckName } from '#attestation/compare-exchange.ts'
import type { BundleCheckName } from '#attestation/evidence/bundle-checks.ts'
import type { RecordCheckName } from '#attestation/verify-record.ts'

/**
 * The links from the request to the block. If a link in `needs` is broken, this link proves nothing
 * about the shown question and answer.
 */
export const LINKS = [
  { name: 'request', title: 'Request and answer', about: 'the question and the answer', needs: [] },
  { name: 'hash', title: 'Hash', about: 'one fingerprint of both', needs: ['request'] },
  {
    name: 'signature',
    title: 'Signature',
    about: 'a key signed that fingerprint',
    needs: ['hash'],
  },
  { name: 'notary', title: 'Notary', about: 'the key was created in an enclave', needs: [] },
  {
    name: 'code',
    title: 'Enclave code',
    about: 'the code and the settings of the enclave',
    needs: ['notary'],
  },
  {
    name: 'log',
    title: 'Log',
    about: 'the answer is an entry in the notary’s public log',
    needs: ['signature'],
  },
  {
    name: 'anchor',
    title: 'Anchor',
    about: 'a transaction holds that log’s state',
    needs: ['log'],
  },
  {
    name: 'block',
    title: 'Block',
    about: 'the transaction is in a block of the chain',
    needs: ['anchor'],
  },
] as const

export type LinkName = (typeof LINKS)[number]['name']

/**
 * `attestation` stands for all checks of the document that belongs to a record. The checks of the
 * provider's evidence belong to a second chain.
 */
type CheckName =
  | Exclude<BundleCheckName, "provider's key" | 'provider attested'>
  | RecordCheckName
  | ExchangeCheckName
  | 'attestation'

/**
 * The link of a check, and what the check shows if it passed. `also`: a second link that depends on
 * the check.
 */
type CheckWords = {
  readonly link: LinkName
  readonly also?: LinkName
  readonly shows: string
}

export const CHECK_WORDS: Readonly<Record<CheckName, CheckWords>> = {
  format: { link: 'hash', shows: 'The file has the form of evidence, with nothing hidden in it.' },
  'request hash': {
    link: 'request',
    shows: 'This is exactly the request that was signed.',
  },
  'response hash': {
    link: 'request',
    shows: 'This is exactly the answer that was signed.',
  },
  'stream hash': {
    link: 'request',
    shows: 'The stream has all the parts that the enclave sent, in the same order.',
  },
  outcome: {
    link: 'request',
    shows: 'The answer is complete, or was cut in a way that you accept.',
  },
  'request given': {
    link: 'request',
    shows: 'The request that you kept is the request of the evidence.',
  },
  'answer given': {
    link: 'request',
    shows: 'The answer that you kept is the answer of the evidence.',
  },
  'proof given': {
    link: 'request',
    shows: 'The proof in the answer that you kept is the proof of the evidence.',
  },
  'other requests': {
    link: 'request',
    shows: 'Requests of this call had no answer. They may have been made.',
  },
  hash: {
    link: 'hash',
    shows: 'The fingerprint belongs to this request and this answer together.',
  },
  receipt: { link: 'hash', shows: 'The receipt belongs to this request and this answer.' },
  created_at: { link: 'hash', shows: 'The time is the same as in the receipt.' },
  'public key': { link: 'signature', shows: 'The key is a well-formed key.' },
  signature: { link: 'signature', shows: 'The holder of that key signed the fingerprint.' },
  'attestation key': { link: 'notary', shows: 'The attestation document names this key.' },
  'attestation document': {
    link: 'notary',
    shows: 'The document is signed, under AWS’s root or one that you accept.',
  },
  'attestation time': {
    link: 'notary',
    shows: 'The answer was finished while the document was valid.',
  },
  // For a record, this check stands for all checks of the document.
  attestation: {
    link: 'notary',
    also: 'code',
    shows: 'The document is genuine, was valid then, and meets your policy.',
  },
  measurements: { link: 'code', shows: 'The enclave has the measurements that you expect.' },
  'boot configuration': {
    link: 'code',
    shows: 'The document names the configuration that the enclave was started with.',
  },
  'expected configuration': { link: 'code', shows: 'You expect this configuration.' },
  provider: { link: 'code', shows: 'The provider that answered is in this configuration.' },
  'receipt in log': {
    link: 'log',
    shows: 'The receipt is in the notary’s log, at its position.',
  },
  'tree head': { link: 'log', shows: 'The notary signed the state of the log.' },
  'transaction hash': {
    link: 'anchor',
    shows: 'The record names this transaction.',
  },
  anchor: {
    link: 'anchor',
    shows: 'The transaction brings this state of the log to the contract.',
  },
  'anchor outcome': {
    link: 'anchor',
    shows: 'The contract accepted it, as the block shows.',
  },
  'block header': {
    link: 'block',
    shows: 'The block’s header has the stated number and hash.',
  },
  'anchor time': { link: 'block', shows: 'The block is not older than the answer.' },
  'transaction in block': { link: 'block', shows: 'The transaction is in that block.' },
  'block on chain': {
    link: 'block',
    shows: 'The chain that you asked has this block, deep enough.',
  },
}

/** These checks need a part that not all evidence has. A link is complete without them. */
export const OPTIONAL_CHECKS: ReadonlySet<string> = new Set<CheckName>([
  'stream hash',
  'proof given',
  'other requests',
])

/** For a check that was not made. */
export const OPEN_ADVICE: Readonly<Partial<Record<CheckName, string>>> = {
  'request hash': 'Give the request that was sent, under “What you kept”.',
  'response hash': 'Give the answer that came, under “What you kept”.',
  measurements: 'Say which code you expect: a signed release and its key, or measurements.',
  attestation: 'Say which code you expect: a signed release and its key, or measurements.',
  'expected configuration': 'Say which boot configuration you expect, by its digest or as a file.',
  outcome: 'The answer was cut. If you accept it like this, say so under “Your policy”.',
  'receipt in log': 'Ask the gateway for the record or the evidence: both have the log.',
  'tree head': 'Ask the gateway for the record or the evidence: both have the log.',
  anchor: 'Ask the gateway for the evidence of this completion: it has the transaction.',
  'block on chain': 'Give the URL of a chain endpoint that you trust, and press “Ask the chain”.',
}

/** Null for an unknown name, which is shown unchanged. */
export function wordsOf(name: string): CheckWords | null {
  return Object.hasOwn(CHECK_WORDS, name) ? CHECK_WORDS[name as CheckName] : null
}
