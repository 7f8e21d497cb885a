import { ProofError } from '#attestation/errors.ts'
import { sayNoBlock } from '#attestation/evidence/anchor-checks.ts'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { completeEvidence } from '#attestation/evidence/create-evidence.ts'
import { callsInPage, writeEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { isHtml, putEvidence } from '#attestation/report/evidence-page.ts'
import { printable } from '#attestation/report/printable.ts'
import { CliError, convertFault, EXIT_CODES, worstOf } from '../faults.ts'
import { isUrl, listFiles, readSource, writeFileWhole } from '../files.ts'
import type { GatewayAccessOptions } from '../options.ts'
import { readCall, readEvidenceFile } from './read-evidence.ts'

/**
 * Completes each file, and prints what was done. A file that cannot be completed does not keep the
 * others from it. Returns the exit code of the worst result.
 */
export async function completeFiles(
  sources: readonly string[],
  options: GatewayAccessOptions,
): Promise<number> {
  const files = await listFiles(sources)
  const codes: number[] = []
  for (const file of files)
    try {
      process.stdout.write(`${printable(file)} ${await completeFile(file, options)}\n`)
    } catch (fault) {
      if (files.length === 1 || !(fault instanceof CliError)) throw fault
      process.stderr.write(`${printable(file)}: ${fault.message}\n`)
      codes.push(fault.exitCode)
    }
  return worstOf(codes)
}

/**
 * Adds the anchors from the gateway to the calls of a file that have none yet. Returns what was
 * done. If the anchor of a call is missing still, or makes a check fail, writes the others, and
 * throws CliError. Does NOT check the rest of the evidence: see verifyBundle.
 */
async function completeFile(file: string, options: GatewayAccessOptions): Promise<string> {
  if (file === '-' || isUrl(file))
    throw new CliError('expected a file, because the anchors are added to it', EXIT_CODES.usage)
  const bytes = await readSource(file)
  const calls = readEvidenceFile(bytes, printable(file), EXIT_CODES.usage)
  const waiting = calls.filter(({ block }) => block === null)
  if (waiting.length === 0) return 'already has its anchor'
  const completed = new Map<EvidenceBundle, EvidenceBundle>()
  let fault: unknown = null
  for (const call of waiting)
    try {
      completed.set(call, await complete(call, options))
    } catch (thrown) {
      if (!(thrown instanceof CliError)) throw thrown
      fault ??= thrown
    }
  const written = calls.map((call) => completed.get(call) ?? call)
  if (completed.size > 0) await writeFileWhole(file, writeAs(bytes, written))
  if (fault !== null) throw fault
  const blocks = [...new Set([...completed.values()].map(({ block }) => block?.number))]
  return `now has its anchor, in block ${blocks.join(', ')}`
}

/** Throws CliError. */
async function complete(
  call: EvidenceBundle,
  options: GatewayAccessOptions,
): Promise<EvidenceBundle> {
  const { evidenceSource } = await import('../gateway-access.ts')
  const { url, access } = evidenceSource(call.record.hash, options)
  const given = readCall(await readSource(url, access), "the gateway's answer")
  const whole = convertFault(
    () => completeEvidence(call, given),
    ProofError,
    ({ message }) => new CliError(`the gateway gave evidence of another call: ${message}`),
  )
  if (whole.block === null) throw new CliError(sayNoBlock(whole), EXIT_CODES.unavailable)
  const before = new Set((await failedIn(call)).map(({ name }) => name))
  const failed = (await failedIn(whole)).find(({ name }) => !before.has(name))
  if (failed !== undefined)
    throw new CliError(
      `the gateway's anchor is invalid: ${failed.name}: ${printable(failed.detail)}`,
    )
  return whole
}

async function failedIn(call: EvidenceBundle) {
  const { checks } = await verifyBundle({ ...call }, {})
  return checks.filter(({ outcome }) => outcome === 'failed')
}

/** Writes the calls in the form of the file: a saved page, or JSON Lines. */
function writeAs(bytes: Uint8Array, calls: readonly EvidenceBundle[]): string {
  if (!isHtml(bytes)) return writeEvidenceLines(calls)
  return putEvidence(new TextDecoder().decode(bytes), callsInPage(calls))
}
