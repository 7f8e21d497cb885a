import type { ChildProcess } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { type Affidavit, type AffidavitOptions, startAffidavit } from '../../support/affidavit.ts'
import { startForwarder } from '../forwarder-process.ts'
import { listTree, nameProcess, readCpuSeconds } from '../processes.ts'
import { awaitNode, CHAT_PATH, keyHeaders, type Target, VERIFIED_PATH } from '../targets.ts'
import { portkeyHeaders, startPortkey } from './portkey.ts'

/** One service and the programs that it is compared with, in front of the same provider. */
export type Stage = {
  readonly service: Affidavit
  readonly provider: Target
  readonly forwarder: Target
  readonly forwarderPid: number
  /** A forwarder in front of another one: as many hops as plain chat has. */
  readonly twoForwarders: Target
  /** Null when it was not requested. */
  readonly portkey: Target | null
  readonly plain: Target
  readonly verified: Target
  /** Verified calls of the other dialects. */
  stop(): Promise<void>
}

type StageOptions = AffidavitOptions & {
  /** The path of its program. Default: without it. */
  readonly portkey?: string | null
  /** Whether to wait until plain chat works. Default: yes. */
  readonly isPlain?: boolean
}

/** Starts the service and its peers. */
export async function startStage(options: StageOptions = {}): Promise<Stage> {
  const children: ChildProcess[] = []
  const service = await startAffidavit({ logLevel: 'warn', ...options })
  const { url, apiKey, providerUrl } = service
  const forwarder = await startForwarder(providerUrl)
  const second = await startForwarder(forwarder.origin)
  children.push(forwarder.process, second.process)
  const portkey = options.portkey ? await startPortkey(options.portkey) : null
  if (portkey !== null) children.push(portkey.process)
  const stop = async () => {
    for (const child of children) child.kill()
    await service.stop()
  }
  try {
    if (options.isPlain !== false) await awaitNode(service)
  } catch (error) {
    await stop()
    throw error
  }
  const bare = { path: CHAT_PATH, headers: {} }
  const headers = keyHeaders(apiKey)
  return {
    service,
    provider: { ...bare, name: 'provider itself', origin: providerUrl },
    forwarder: { ...bare, name: 'bare forwarder', origin: forwarder.origin },
    forwarderPid: forwarder.process.pid ?? 0,
    twoForwarders: { ...bare, name: 'two forwarders in a row', origin: second.origin },
    portkey:
      portkey === null
        ? null
        : {
            name: 'Portkey',
            origin: portkey.origin,
            path: CHAT_PATH,
            headers: portkeyHeaders(providerUrl),
          },
    plain: { name: 'plain chat', origin: url, path: CHAT_PATH, headers },
    verified: { name: 'verified', origin: url, path: VERIFIED_PATH, headers },
    stop,
  }
}

/** The name of a process of ours: the script that it runs. */
export const ENCLAVE = 'enclave/main.ts'
export const GATEWAY = 'src/main.ts'
export const PROVIDER = 'demo/main.ts'

/** Process ids of the service, each with the name of its process. */
export function processesOf(service: Affidavit): readonly (readonly [pid: number, name: string])[] {
  return listTree(service.pid).map((pid) => [pid, nameProcess(pid)] as const)
}

/** The process of the service that runs this script. */
export function pidOf(service: Affidavit, script: string): number {
  const found = processesOf(service).find(([, name]) => name === script)
  if (found === undefined) throw new Error(`expected a process of ${script}`)
  return found[0]
}

/** Gives CPU milliseconds by process from now on; without the processes that have ended. */
export function startCpu(pids: readonly number[]): () => ReadonlyMap<number, number> {
  const before = readCpuSeconds(pids)
  return () =>
    new Map(
      [...readCpuSeconds(pids)].map(([pid, seconds]) => [
        pid,
        (seconds - (before.get(pid) ?? seconds)) * 1_000,
      ]),
    )
}

/** Bytes of memory that the process has resident (proc(5), VmRSS). */
export function residentBytes(pid: number): number {
  const [, kilobytes] =
    /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kilobytes) * 1_024
}
