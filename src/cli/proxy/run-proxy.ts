import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { memberAt } from '../../../attestation/json/value.ts'
import { printable } from '../../../attestation/report/printable.ts'
import { type Affidavit, connect } from '../../../client/connect.ts'
import { AffidavitError } from '../../../client/errors.ts'
import type { Proof } from '../../../client/proof.ts'
import { openExpectations } from '../expectations-file.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { writeFileWhole } from '../files.ts'
import { type ProxiedCall, serveProxy } from './serve-proxy.ts'

/** Options of `affidavit proxy`. */
export type ProxyCommandOptions = {
  readonly url: string
  readonly expect: string
  readonly port: number
  readonly save?: string
  readonly hold?: true
  readonly encrypt: boolean
}

/**
 * Connects to the gateway, serves the proxy until the process is told to stop, and prints a line
 * for each call and a count at the end. Throws CliError.
 */
export async function runProxy(options: ProxyCommandOptions): Promise<void> {
  const { save } = options
  if (save !== undefined) await mkdir(save, { recursive: true, mode: 0o700 })
  const affidavit = await open(options, async (proof) => {
    if (save !== undefined) await writeFileWhole(join(save, `${proof.hash}.json`), proof.save())
  })
  const counts: Record<ProxiedCall['verdict'], number> = {
    checked: 0,
    refused: 0,
    error: 0,
    left: 0,
  }
  const proxy = await serveProxy({
    affidavit,
    port: options.port,
    onCall: (call) => {
      counts[call.verdict] += 1
      process.stdout.write(`${printCall(call)}\n`)
    },
  }).catch((fault: unknown) => {
    throw new CliError(`cannot serve on port ${options.port}: ${(fault as Error).message}`)
  })
  const notaries = affidavit.notaries.map(({ notary }) => notary)
  process.stdout.write(
    `Checked answers at ${proxy.baseURL}, from ${options.url}\n` +
      `Enclaves that are expected: ${notaries.join(', ')}\n` +
      `${save === undefined ? 'Proofs are not kept: say --save FOLDER' : `Proofs are kept in ${save}`}\n`,
  )
  await stopped()
  await proxy.close()
  process.stdout.write(
    `${counts.checked} checked, ${counts.refused} refused, ${counts.error} errors, ${counts.left} left\n`,
  )
}

async function open(
  { url, expect: file, hold, encrypt }: ProxyCommandOptions,
  onProof: (proof: Proof) => Promise<void>,
): Promise<Affidavit> {
  const { expect, roots } = await openExpectations(file)
  try {
    return await connect({
      url,
      expect,
      ...(roots === undefined ? {} : { roots }),
      hold: hold === true,
      encrypt,
      onProof,
    })
  } catch (fault) {
    if (!(fault instanceof AffidavitError)) throw fault
    const isUsage = fault.code === 'invalid_options'
    throw new CliError(
      `${fault.code}: ${printable(fault.message)}`,
      isUsage ? EXIT_CODES.usage : EXIT_CODES.failed,
    )
  }
}

const VERDICT_WIDTH = 'checked'.length

/** One line for people: when, verdict, model, tokens, time, and by which enclave or why not. */
function printCall({ model, verdict, detail, proof, durationMs }: ProxiedCall): string {
  const tokens = proof === null ? null : tokensOf(proof)
  return [
    new Date().toISOString().slice(11, 19),
    verdict.padEnd(VERDICT_WIDTH),
    printable(model ?? '-'),
    `${Math.round(durationMs)} ms`,
    ...(tokens === null ? [] : [`${tokens} tokens`]),
    ...(detail === null ? [] : [printable(detail)]),
    ...(proof === null ? [] : [`notary ${proof.notary}`, `hash ${proof.hash}`]),
  ].join('  ')
}

function tokensOf({ answer }: Proof): number | null {
  const holders = answer.kind === 'whole' ? [answer.answer] : answer.chunks
  const totals = holders.map((holder) => memberAt(holder, 'usage', 'total_tokens'))
  return totals.find((total) => typeof total === 'number') ?? null
}

/** Resolves at the first signal that asks the process to stop. */
function stopped(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve())
  })
}
