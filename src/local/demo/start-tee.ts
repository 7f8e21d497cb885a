import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { Server } from 'node:https'
import { join } from 'node:path'
import { parsePolicy, readProviderPolicies } from '#attestation/report/policy-file.ts'
import { placeFile } from '../../runtime/place-file.ts'
import { hashSealedModels } from '../tee/sealed-models.ts'
import { createSimulatedTee } from '../tee/simulated-tee.ts'
import { openTeeKeys } from '../tee/tee-keys.ts'
import { toPem } from '../x509/certificate-builder.ts'
import type { AttestedDemo } from './config.ts'
import { createTeeServer } from './server.ts'
import { serverOrigin } from './server-origin.ts'

/** Maximum number of origins in the policy. Each start can add an origin. */
const ORIGINS_MAX = 8

/**
 * Starts the simulated TEE. `folder` keeps the TEE's keys, so that evidence stays valid after a
 * restart. Its folder `tee` also gets the policy and the CA's certificate.
 */
export async function startTee(options: {
  readonly folder: string
  readonly host: string
  /** 0: the last port if it is free, else any free port. */
  readonly port: number
  readonly delayMs: number
  /** Unix milliseconds. */
  readonly now: () => number
}): Promise<{ readonly server: Server; readonly ready: AttestedDemo }> {
  const { folder, host, port, delayMs, now } = options
  const keys = await openTeeKeys(join(folder, 'tee', 'keys.json'), now())
  const tee = createSimulatedTee(keys, { sealed: await hashSealedModels(), host, now })
  const policyFile = join(folder, 'tee', 'policy.json')
  const known = await readOrigins(policyFile)
  const server = createTeeServer({ delayMs, now }, tee)
  const last = known[0] === undefined ? 0 : Number(new URL(known[0]).port)
  await listenOnOne(server, { host, ports: port === 0 ? [last, 0] : [port] })
  const origin = serverOrigin(server)
  const origins = [...new Set([origin, ...known])].slice(0, ORIGINS_MAX)
  const caFile = join(folder, 'tee', 'ca.pem')
  await place(caFile, toPem(keys.tlsAuthority.certificate))
  await place(policyFile, `${JSON.stringify({ providers: [tee.policyFor(origins)] }, null, 2)}\n`)
  return { server, ready: { origin, caFile, policyFile } }
}

/** The newest origin is first. Empty if there is no readable policy. */
async function readOrigins(policyFile: string): Promise<readonly string[]> {
  try {
    const [provider] = (await readProviderPolicies(parsePolicy(await readFile(policyFile)))) ?? []
    return provider?.origins ?? []
  } catch {
    return []
  }
}

/** Listens on the first free port. Rejects if no port is free. */
async function listenOnOne(
  server: Server,
  {
    host,
    ports: [port = 0, ...others],
  }: { readonly host: string; readonly ports: readonly number[] },
): Promise<void> {
  server.listen(port, host)
  try {
    await once(server, 'listening')
  } catch (fault) {
    if (others.length === 0) throw fault
    await listenOnOne(server, { host, ports: others })
  }
}

function place(path: string, content: string): Promise<void> {
  return placeFile(path, content, { draft: `${path}.draft` })
}
