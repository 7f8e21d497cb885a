import { randomBytes } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { isatty } from 'node:tty'
import { keptResponseOf } from '#attestation/compare-exchange.ts'
import { DIALECTS, dialectOfRequest } from '#attestation/dialects/dialects.ts'
import { attempt } from '#attestation/finding.ts'
import { printable } from '#attestation/report/printable.ts'
import { type Affidavit, connect } from '#client/connect.ts'
import { AffidavitError, type AffidavitErrorCode, messageOf } from '#client/errors.ts'
import type { Proof } from '#client/proof.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { writeFileWhole } from '../files.ts'
import { openPolicy, requirePart } from '../policy-file.ts'
import { throwNotKept } from './caller-errors.ts'
import { followReleases } from './newer-releases.ts'
import { openOwnedSession } from './owned-session.ts'
import { type ProxiedCall, serveProxy } from './serve-proxy.ts'
import { CLOSE_TIMEOUT_MS, openSessionFile } from './session-file.ts'

export type ProxyCommandOptions = {
  readonly url: string
  readonly policy: string
  readonly rpc?: string
  readonly port: number
  readonly save?: string
  readonly session?: string
  readonly hold?: true
  readonly token?: true
  readonly encrypt: boolean
}

const TOKEN_BYTES = 16

/**
 * Serves the proxy until a signal stops it. Prints a line for each call, and a count at the end.
 * Throws CliError.
 */
export async function runProxy(options: ProxyCommandOptions): Promise<void> {
  const { save } = options
  if (save !== undefined) await mkdir(save, { recursive: true, mode: 0o700 })
  const fileOf = (proof: Proof) => join(save ?? '', `${proof.hash}.json`)
  const affidavit = await open(options, async (proof) => {
    if (save !== undefined) await writeFileWhole(fileOf(proof), proof.save()).catch(throwNotKept)
  })
  const completing = createCompleting(affidavit, fileOf)
  const file =
    options.session === undefined ? null : await openSessionFile(options.session, affidavit)
  const session = file === null ? null : openOwnedSession(affidavit, file)
  const counts: Record<ProxiedCall['verdict'], number> = {
    checked: 0,
    refused: 0,
    error: 0,
    left: 0,
  }
  const proxy = await serveProxy({
    affidavit,
    ...(session === null ? {} : { session }),
    port: options.port,
    ...(options.token === true ? { token: randomBytes(TOKEN_BYTES).toString('base64url') } : {}),
    onProof: (proof, apiKey) => {
      if (save !== undefined) completing.add(proof, apiKey)
    },
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
      `Accepted enclaves: ${notaries.join(', ')}\n` +
      sayProviders(affidavit) +
      `${sayKept(options)}\n` +
      `${file?.start?.isEnded ? SAY_ENDED : ''}`,
  )
  // At a terminal, SIGHUP means that the terminal closed.
  const isAtTerminal = isatty(0)
  const stopFollowing = isAtTerminal ? null : followReleases(affidavit, options.policy)
  await stopped(isAtTerminal ? [...STOPS, 'SIGHUP'] : STOPS)
  stopFollowing?.()
  await proxy.close()
  const incomplete = await completing.close()
  if (incomplete > 0)
    process.stdout.write(
      `${incomplete} files have no anchor yet. Add it later: affidavit complete ` +
        `${save}/*.json --url ${options.url}\n`,
    )
  const { waiting = 0, isOpen = false } = (await file?.close()) ?? {}
  if (waiting > 0)
    process.stdout.write(
      `${waiting} calls of the session were not added to ${options.session} in this run. To add ` +
        'them, start the proxy again with this file, and send any request with the API key of the session\n',
    )
  if (isOpen)
    process.stdout.write(
      `The session has not had its last call. Keep ${options.session}.calls: the proxy continues ` +
        'the session with it\n',
    )
  process.stdout.write(
    `${counts.checked} checked, ${counts.refused} refused, ${counts.error} errors, ${counts.left} left\n`,
  )
}

function sayProviders({ providers, refusedProviders }: Affidavit): string {
  const accepted = providers.map(({ provider, origin, validUntil, facts }) => {
    const { tee, code, model, hasReplacedRoots } = facts
    const named = [code?.by, code?.repository, code?.release, code?.digest]
    return (
      `Attested provider: ${provider} at ${origin}: ${tee}, code by ` +
      `${named.filter(Boolean).join(' ')}, weights ${model.weights}, ` +
      `until ${validUntil.toISOString()}${hasReplacedRoots ? ', under a development root' : ''}`
    )
  })
  const refused = refusedProviders.map(
    ({ provider, origin, reason }) =>
      `Gets no call: ${provider ?? 'a provider'} at ${origin}: ${messageOf(reason)}`,
  )
  return [...accepted, ...refused].map((line) => `${printable(line)}\n`).join('')
}

const SAY_ENDED =
  "This session had its last call, so the proxy refuses its owner's calls. Any request with the " +
  'API key of the session, such as GET /v1/models, makes it add the evidence that is missing\n'

function sayKept({ save, session }: ProxyCommandOptions): string {
  const kept = [
    ...(save === undefined ? [] : [`Proofs are kept in ${save}`]),
    ...(session === undefined ? [] : [`This session is kept in ${session}`]),
  ]
  return kept.join('. ') || 'Proofs are not kept: use --save FOLDER or --session FILE to keep them'
}

/** Maximum number of proofs that wait for their anchors. */
const COMPLETING_MAX = 64

/**
 * Adds the anchor to each saved file when a block has it. If the proxy stops earlier,
 * `affidavit complete` can add the anchor later.
 */
function createCompleting(
  affidavit: Pick<Affidavit, 'anchored'>,
  fileOf: (proof: Proof) => string,
) {
  const stopping = new AbortController()
  const running = new Set<Promise<void>>()
  let incomplete = 0
  async function complete(proof: Proof, apiKey: string | null): Promise<void> {
    const key = apiKey === null ? {} : { apiKey }
    try {
      const evidence = await affidavit.anchored(proof, { signal: stopping.signal, ...key })
      await writeFileWhole(fileOf(proof), evidence.save())
    } catch (fault) {
      incomplete += 1
      if (!stopping.signal.aborted)
        process.stderr.write(
          `${proof.hash}: its anchor was not added: ${printable(messageOf(fault))}\n`,
        )
    }
  }
  return {
    add(proof: Proof, apiKey: string | null): void {
      if (running.size >= COMPLETING_MAX) {
        incomplete += 1
        return
      }
      const one = complete(proof, apiKey)
      running.add(one)
      void one.finally(() => running.delete(one))
    },
    /** Resolves with the number of proofs that are still incomplete. */
    async close(): Promise<number> {
      const timer = setTimeout(() => stopping.abort(new Error('the proxy stops')), CLOSE_TIMEOUT_MS)
      await Promise.all(running)
      clearTimeout(timer)
      return incomplete
    },
  }
}

async function open(
  { url, policy: file, rpc, hold, encrypt }: ProxyCommandOptions,
  onProof: (proof: Proof) => Promise<void>,
): Promise<Affidavit> {
  const { policy, enclaves } = await openPolicy(file)
  requirePart(enclaves, 'enclaves', file)
  try {
    return await connect({
      url,
      policy,
      ...(rpc === undefined ? {} : { rpc }),
      hold: hold === true,
      encrypt,
      onProof,
    })
  } catch (fault) {
    if (!(fault instanceof AffidavitError)) throw fault
    throw new CliError(
      `${fault.code}: ${printable(fault.message)}`,
      CONNECT_EXIT_CODES[fault.code] ?? EXIT_CODES.failed,
    )
  }
}

const CONNECT_EXIT_CODES: Readonly<Partial<Record<AffidavitErrorCode, number>>> = {
  invalid_options: EXIT_CODES.usage,
  unreachable: EXIT_CODES.unavailable,
  gateway_error: EXIT_CODES.unavailable,
}

const VERDICT_WIDTH = 'checked'.length

function printCall(call: ProxiedCall): string {
  const { model, verdict, detail, proof, durationMs, isOutside } = call
  const tokens = proof === null ? null : tokensOf(proof)
  return [
    new Date().toISOString().slice(11, 19),
    verdict.padEnd(VERDICT_WIDTH),
    printable(model ?? '-'),
    `${Math.round(durationMs)} ms`,
    ...(tokens === null ? [] : [`${tokens} tokens`]),
    ...(isOutside ? ['outside of the session'] : []),
    ...(detail === null ? [] : [printable(detail)]),
    ...(proof === null ? [] : [`notary ${proof.notary}`, `hash ${proof.hash}`]),
  ].join('  ')
}

function tokensOf({ request, answer }: Proof): number | null {
  const dialect = dialectOfRequest(request)
  const read = attempt(() => keptResponseOf(answer, dialect))
  return 'value' in read ? (DIALECTS[dialect].usageOf(read.value)?.total_tokens ?? null) : null
}

const STOPS = ['SIGINT', 'SIGTERM'] as const satisfies readonly NodeJS.Signals[]

function stopped(signals: readonly NodeJS.Signals[]): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of signals) process.once(signal, () => resolve())
  })
}
