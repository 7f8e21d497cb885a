import { compareExchange, keptProofOf } from '#attestation/compare-exchange.ts'
import { dialectOfRequest } from '#attestation/dialects/dialects.ts'
import { FormatError } from '#attestation/errors.ts'
import { sayNoBlock } from '#attestation/evidence/anchor-checks.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, memberAt } from '#attestation/json/value.ts'
import { printable } from '#attestation/report/printable.ts'
import { parseSavedProof, type SavedProof, writeSavedProof } from '#attestation/saved-proof.ts'
import { CliError, convertFault, EXIT_CODES, worstOf } from '../faults.ts'
import { readSource, writeFileWhole } from '../files.ts'
import { type GatewayAccessOptions, hashOf, isHash } from '../options.ts'
import { readBundle } from './read-evidence.ts'

/**
 * Completes each file, and prints what was done. A file that cannot be completed does not keep the
 * others from it. Returns the exit code of the worst result.
 */
export async function completeProofs(
  files: readonly string[],
  options: GatewayAccessOptions,
): Promise<number> {
  const codes: number[] = []
  for (const file of files)
    try {
      process.stdout.write(`${printable(file)} ${await completeProof(file, options)}\n`)
    } catch (fault) {
      if (files.length === 1 || !(fault instanceof CliError)) throw fault
      process.stderr.write(`${printable(file)}: ${fault.message}\n`)
      codes.push(fault.exitCode)
    }
  return worstOf(codes)
}

/**
 * Adds the evidence bundle from the gateway to the file of a saved proof. The file can then be
 * checked without a gateway. Returns a text that states what was done. On any failure, such as a
 * bundle without a block or for another call, throws CliError and does not change the file. Does
 * NOT check the bundle: see verifyBundle.
 */
async function completeProof(file: string, options: GatewayAccessOptions): Promise<string> {
  const {
    request,
    answer,
    unanswered = [],
    bundle: known,
  } = readProof(await readSource(file), file)
  if (known !== undefined) return 'already has its evidence bundle'
  const { evidenceSource } = await import('../gateway-access.ts')
  const { url, access } = evidenceSource(hashIn({ request, answer }, file), options)
  const bytes = await readSource(url, access)
  const bundle = readBundle(bytes, "the gateway's answer")
  const differing = compareExchange({ ...bundle.record }, { request, answer }).find(
    ({ outcome }) => outcome !== 'passed',
  )
  if (differing !== undefined)
    throw new CliError(
      `the gateway gave evidence of another call: ${differing.name}: ${printable(differing.detail)}`,
    )
  if (bundle.block === null) throw new CliError(sayNoBlock(bundle), EXIT_CODES.unavailable)
  const given = parseExactJson(bytes)
  if (isJsonObject(given))
    await writeFileWhole(file, writeSavedProof({ request, answer, unanswered, bundle: given }))
  return `now has its evidence bundle, with block ${bundle.block.number}`
}

function readProof(bytes: Uint8Array, file: string): SavedProof {
  const toError = ({ message }: FormatError) =>
    new CliError(`expected ${printable(file)} to be a saved proof: ${message}`, EXIT_CODES.usage)
  return convertFault(() => parseSavedProof(parseExactJson(bytes)), FormatError, toError)
}

/** Returns the hash that the answer states. It is compared with the answer's real hash later. */
function hashIn({ request, answer }: SavedProof, file: string): string {
  const hash = memberAt(keptProofOf(answer, dialectOfRequest(request)), 'hash')
  if (typeof hash === 'string' && isHash(hash)) return hashOf(hash)
  throw new CliError(`expected ${printable(file)} to have the hash of its completion`)
}
