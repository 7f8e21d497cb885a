import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import type { Release } from '#attestation/release/release.ts'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'
import { releaseKeyOf } from '#attestation/release/release-signatures.ts'
import { signReleaseList } from '#attestation/release/verify-release.ts'
import { LOCAL_DOMAIN } from '#src/local/local-chain.ts'
import { type NsmServer, serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'

/** An enclave process with a simulated security module, at a socket. */
export type FleetEnclave = {
  /** For ENCLAVE_URL and `affidavit enclaves`. */
  readonly url: string
  readonly notary: string
  /** SIGTERM: waits for the gateway to fetch what is sealed. Resolves with the exit code. */
  stop(): Promise<number | null>
  /** kill -9; resolves when it is gone. */
  kill(): Promise<void>
}

/** Several enclaves of one chain, a provider, and a signed list of their accepted releases. */
export type EnclaveFleet = {
  readonly folder: string
  /** Where the provider listens. */
  readonly providerOrigin: string
  /** Certificate of the root to which all enclaves' documents lead. */
  readonly rootFile: string
  /** ENCLAVE_RELEASES_FILE and RELEASE_KEY. */
  readonly releaseVariables: Readonly<Record<string, string>>
  /** Starts an enclave that measures as `release`, at the socket `name`. */
  start(name: string, release: string): Promise<FleetEnclave>
  /** Writes a new list of accepted releases, later than the last one. */
  accept(entries: readonly ReleaseEntry[]): Promise<void>
  stop(): Promise<void>
}

const root = join(import.meta.dirname, '../..')
const SECRET_KEY = new Uint8Array(32).fill(7)

/** A release whose measurements are made of its name, two hex digits. */
export function releaseNamed(name: string): Release {
  const register = name.repeat(48)
  return {
    version: `1.0.${Number.parseInt(name, 16)}`,
    git_commit: name.repeat(20),
    created_at: '2026-01-01T00:00:00Z',
    architecture: 'x86_64',
    measurements: { PCR0: register, PCR1: register, PCR2: register },
    inputs: {},
  }
}

/** An entry that is accepted without end; `over` changes its members. */
export function entryNamed(name: string, over: Partial<ReleaseEntry> = {}): ReleaseEntry {
  return {
    release: releaseNamed(name),
    accepted_from: null,
    accepted_until: null,
    revoked: null,
    ...over,
  }
}

/** Starts the provider; there is no enclave yet, and no release is accepted. */
export async function startEnclaveFleet(demoDelayMs = '5'): Promise<EnclaveFleet> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-fleet-'))
  const children = new Set<ChildProcess>()
  const servers: NsmServer[] = []
  const run = (file: string, env: Readonly<Record<string, string>>, output: 'pipe' | 'ignore') => {
    const child = fork(join(root, file), {
      env: { PATH: process.env.PATH ?? '', ...env },
      stdio: ['ignore', output, 'ignore', 'ipc'],
    })
    children.add(child)
    return child
  }
  const demo = run(
    'src/local/demo/main.ts',
    { DEMO_PORT: '0', DEMO_DELAY_MS: demoDelayMs },
    'ignore',
  )
  const [{ origin }] = (await once(demo, 'message')) as [{ origin: string }]
  const releasesFile = join(folder, 'releases.json')
  let issued = Date.parse('2026-01-01T00:00:00Z')

  async function accept(releases: readonly ReleaseEntry[]): Promise<void> {
    issued += 1_000
    const issuedAt = new Date(issued).toISOString().replace('.000Z', 'Z')
    const signed = signReleaseList({ issued_at: issuedAt, releases }, SECRET_KEY)
    await writeFile(releasesFile, JSON.stringify(signed))
  }

  async function start(name: string, release: string): Promise<FleetEnclave> {
    const socket = join(folder, `${name}.sock`)
    const register = decodeHex(release.repeat(48))
    const nsm = await serveSoftwareNsm({
      socketPath: join(folder, `${name}.nsm`),
      rootFile: join(folder, 'root.pem'),
      measurements: { pcr0: register, pcr1: register, pcr2: register },
    })
    servers.push(nsm)
    const child = run(
      'enclave/main.ts',
      {
        ENCLAVE_SOCKET: socket,
        NSM_SOCKET: nsm.socketPath,
        CHAIN_ID: String(LOCAL_DOMAIN.chainId),
        CONTRACT_ADDRESS: LOCAL_DOMAIN.contract,
        DEMO_PROVIDER_ORIGIN: origin,
      },
      'pipe',
    )
    const exited = once(child, 'exit')
    const end = async (signal: NodeJS.Signals) => {
      child.kill(signal)
      await exited
      return child.exitCode
    }
    return {
      url: `unix:${socket}`,
      notary: await readNotary(child),
      stop: () => end('SIGTERM'),
      kill: async () => {
        await end('SIGKILL')
      },
    }
  }

  await accept([])
  return {
    folder,
    providerOrigin: origin,
    rootFile: join(folder, 'root.crt.pem'),
    releaseVariables: {
      ENCLAVE_RELEASES_FILE: releasesFile,
      RELEASE_KEY: encodeHex(releaseKeyOf(SECRET_KEY)),
    },
    start,
    accept,
    stop: async () => {
      for (const child of children) child.kill('SIGKILL')
      for (const server of servers) await server.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function readNotary(child: ChildProcess): Promise<string> {
  let text = ''
  for await (const part of child.stdout ?? []) {
    text += part
    if (text.includes('\n')) break
  }
  const { notary } = JSON.parse(text) as { notary: string }
  return notary
}
