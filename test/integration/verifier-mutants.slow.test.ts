import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { compareExchange } from '#attestation/compare-exchange.ts'
import { BUNDLE_CHECKS } from '#attestation/evidence/bundle-checks.ts'
import { ATTESTATION_CODES } from '#attestation/nitro/attestation-error.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import type { MutantReport, MutantsOutput } from '../conformance/mutants/main.ts'
import { writeBundledProgram } from '../support/bundled-program.ts'

const ROOT = join(import.meta.dirname, '../..')
const MUTANTS = join(ROOT, 'test/conformance/mutants')
const BUFFER = { maxBuffer: 256 * 1024 * 1024 }
const runNode = async (...words: readonly string[]) =>
  await promisify(execFile)(process.execPath, words, BUFFER)

let output: MutantsOutput
beforeAll(async () => {
  const { stdout } = await runNode('--import', join(MUTANTS, 'hook.ts'), join(MUTANTS, 'main.ts'))
  output = JSON.parse(stdout)
}, 600_000)

const find = (key: string, kind: MutantReport['kind']) =>
  output.mutants.find((mutant) => mutant.key === key && mutant.kind === kind)

/**
 * Checks whose mutant no verdict can show: by the rules, another check fails whenever they fail.
 * The report shows that they were skipped.
 */
const SHADOWED_CHECKS: Readonly<Record<string, string>> = {
  'request hash': 'the check receipt compares the same hash',
  'public key': 'the checks signature and tree head need the same point',
}

/** Checks that a bundle may leave open: a verifier must not call them passed. */
const OPEN_IN_BUNDLES = [
  'request hash',
  'response hash',
  'measurements',
  'expected configuration',
  'outcome',
  'block header',
  'anchor time',
  'transaction in block',
  'anchor outcome',
  'block on chain',
]

describe('a verifier that skips one check of a bundle', () => {
  it.each(Object.keys(BUNDLE_CHECKS).filter((name) => name !== 'outcome'))(
    'a verifier that skips the bundle check %s is found',
    (name) => {
      const mutant = find(`check ${name}`, 'bundle')
      expect(mutant?.byReport).toEqual(expect.any(String))
      if (name in SHADOWED_CHECKS) expect(mutant?.byVerdict).toBeNull()
      else expect(mutant?.byVerdict).toEqual(expect.any(String))
    },
  )

  it("a verifier that does not verify a bundle's document at all is found by its verdict", () => {
    expect(find('verification attestation document', 'bundle')?.byVerdict).toEqual(
      expect.any(String),
    )
  })

  it.each(OPEN_IN_BUNDLES)(
    'a verifier that says of a bundle that %s passed, which was not made, is found',
    (name) => {
      expect(find(`open ${name}`, 'bundle')?.byReport).toEqual(expect.any(String))
    },
  )

  it('a verifier that takes a cut answer for a whole one is found by its verdict', () => {
    expect(find('open outcome', 'bundle')?.byVerdict).toEqual(expect.any(String))
  })
})

describe('a verifier that skips one check of a record', () => {
  const names = verifyRecord({}).checks.map(({ name }) => name)
  it.each([...names.filter((name) => name !== 'anchor'), 'attestation'])(
    'a verifier that skips the record check %s is found',
    (name) => {
      const mutant = find(`check ${name}`, 'record')
      expect(mutant?.byReport).toEqual(expect.any(String))
      if (name in SHADOWED_CHECKS) expect(mutant?.byVerdict).toBeNull()
      else expect(mutant?.byVerdict).toEqual(expect.any(String))
    },
  )

  it.each(['anchor', 'stream hash', 'created_at', 'receipt', 'receipt in log', 'tree head'])(
    'a verifier that says of a record that %s passed, which was not made, is found',
    (name) => {
      expect(find(`open ${name}`, 'record')?.byReport).toEqual(expect.any(String))
    },
  )

  it("a verifier that passes a record's document, of which nothing was expected, is found", () => {
    expect(find('open attestation', 'record')?.byReport).toEqual(expect.any(String))
  })
})

describe('a verifier that skips one comparison with what was kept', () => {
  const kept = { request: {}, answer: { kind: 'whole', answer: {} } } as const
  const names = compareExchange({}, kept).map(({ name }) => name)
  it.each(names)('a verifier that skips the comparison %s is found by its verdict', (name) => {
    for (const kind of ['bundle', 'record'] as const)
      expect(find(`check ${name}`, kind)?.byVerdict).toEqual(expect.any(String))
  })
})

/**
 * Codes whose fault another rule catches: a verifier without the rule refuses the same documents,
 * for another reason. A verdict finds all others.
 */
const SHADOWED_CODES: Readonly<Record<string, string>> = {
  document_too_large: 'payload and signature have bounds, and nothing may follow: a bound on work',
  envelope_tag: 'what has another tag decodes to no array',
  protected_header_malformed: 'no algorithm is read from it',
  protected_header_crit: 'it is an unexpected key too',
  unprotected_header_malformed: 'the decoder gives it no size, or another one than zero',
  payload_malformed: 'there are no bytes to scan',
  signature_malformed: 'no signature is there to verify',
  signature_size: 'no signature of another size verifies',
  cbor_truncated: 'the decoder refuses it',
  cbor_reserved: 'the decoder refuses it',
  cbor_chunked_string: 'the decoder gives other values of it than were signed',
  payload_not_map: 'no field is found in it',
  pcrs_malformed: 'no PCR is found in it',
  pcrs_count: 'none lacks PCR0, and the 33rd has an index beyond 31',
  cabundle_malformed: 'no root is found in it',
  cabundle_count: 'none has no root, and of 33 the path length or a signature fails',
  chain_order: 'what is first instead is no trusted root',
  certificate_signature_malformed: 'no such signature verifies',
  certificate_algorithm: 'the signature is verified as ecdsa-with-SHA384',
  certificate_key_type: 'no point on P-384 is read from it',
  signature_out_of_range: 'no such signature verifies',
  nonce_missing: 'none is not the one that is expected',
}

/** The command line refuses these before it verifies the document. */
const NEVER_REACHED = ['revocation_list_foreign', 'revocation_list_not_yet_valid']

describe('a verifier that skips one rule of documents', () => {
  it.each(Object.keys(ATTESTATION_CODES).filter((code) => !NEVER_REACHED.includes(code)))(
    'a verifier that skips the rule %s is found by its verdict, or refuses the same by another rule',
    (code) => {
      const found = output.mutants.filter(({ key }) => key === `code ${code}`)
      expect(found).not.toEqual([])
      const byVerdict = found.filter((mutant) => mutant.byVerdict !== null)
      if (code in SHADOWED_CODES) expect(byVerdict).toEqual([])
      else expect(byVerdict).not.toEqual([])
    },
  )
})

/** Refusals of evidence whose fault another refusal catches, by their text. */
const SHADOWED_THROWS: readonly RegExp[] = [
  // These only pass a refusal on, or repeat it in other words.
  /finding\.ts: attempted\.fault/,
  /verify-bundle\.ts: fault/,
  /provider-chain\.ts: new ProviderEvidenceError\(fault\.code/,
  /anchor-checks\.ts: new ProofError\('no_block'/,
  // Every signature needs the point again.
  /account\.ts: new FormatError\( 'invalid_public_key'/,
  // The next step cannot use these values, or finds another difference in them.
  /merkle\/verify\.ts: invalidProof\(/,
  /sigstore\/log-entry\.ts: refuseBundle\('log_unknown'/,
  /find-answer\.ts: refuseEvidence\('answer_missing'/,
  /trie\.ts: invalid\('expected nothing after the leaf'/,
  /anchor-checks\.ts: new ProofError\('not_on_chain', `expected the chain to have/,
  /bytes\.ts: new FormatError\('invalid_base64'/,
  /bundle-forms\.ts: invalid\(name, `standard base64/,
  /compare-exchange\.ts: new ProofError\('other_answer', `\$\{failed\.name\}/,
  /verify-record\.ts: new ProofError\( 'wrong_stream', 'expected the chunks that the enclave/,
  /check-chunk\.ts: changed\('expected content to be text, parts or null'/,
  /verify-stream\.ts: invalidStream\('the stream is not whole/,
  /verify-stream\.ts: invalidStream\('expected events without a name/,
  // The check receipt compares dialect and headers with those of the request.
  /receipt\.ts: invalid\('headers'/,
  /call-request\.ts: invalid\('(?:dialect|headers)'/,
  // What these refuse in a kept stream also has another stream hash, or no proof at its end.
  /kept-stream\.ts: refuse\('(?:cut_stream|missing_proof|late_event)'/,
  /dialect\.ts: refuse\('changed_type'/,
  /event-text\.ts: invalidStream\('expected of each event one line/,
  /kept-events\.ts: invalidStream\('expected one line of data/,
  /(?:responses|messages)\/read-stream\.ts: refuse\('(?:late_event|changed_text|changed_identity|changed_finish|upstream_failure)'/,
  /responses\/item\.ts: refuse\('changed_text', 'expected a part/,
  /messages\/block\.ts: refuse\('(?:unread_member|late_event)'/,
]

describe('a verifier that goes on where ours refuses', () => {
  it('a verifier that goes on where ours refuses is found, unless another refusal catches the same case', () => {
    const throws = output.mutants.filter(({ key }) => key.startsWith('throw '))
    expect(throws.length).toBeGreaterThan(80)
    const places = new Set(throws.map(({ key }) => key))
    const missed = [...places].filter((place) =>
      throws.every(({ key, byVerdict }) => key !== place || byVerdict === null),
    )
    expect(missed.filter((place) => !SHADOWED_THROWS.some((one) => one.test(place)))).toEqual([])
  })
})

describe('the whole manifest', () => {
  it('our verifier conforms to the whole manifest with nothing skipped, but for how it is loaded', () => {
    expect(output.different).toEqual([])
  })

  it('our program, as its package has it, conforms in each case of the manifest except documents', async () => {
    const driver = join(ROOT, 'test/conformance/run.ts')
    const { program, remove } = await writeBundledProgram()
    const ours = [process.execPath, program]
    const { stdout } = await runNode(driver, '--failures', '--without', 'attestation', ...ours)
    expect(stdout).toMatch(/^CONFORMS: \d{3} cases, \d{3} skipped$/m)
    await remove()
  }, 900_000)
})
