import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type {
  DeployedEnclave,
  DeployedGateway,
  Deployment,
} from '../support/deployment/deployment.ts'
import type { ProviderFault } from '../support/deployment/scripted-provider.ts'
import type { SmallDisk } from './small-disk.ts'

/** The deployment that faults befall: two gateways, two enclaves, and two small disks. */
export type Scene = {
  readonly deployment: Deployment
  /** Where the database's data are, and a disk for the gateway's own; null: none can be made. */
  readonly disks: { readonly database: SmallDisk; readonly gateway: SmallDisk } | null
}

/** Something that goes wrong with a service, and how it is put right. */
export type Fault = {
  /** Of which part, for the table's order. */
  readonly part: string
  readonly name: string
  /** How it is made, for who reads the table. */
  readonly how: string
  /** Starts the first gateway otherwise, before anything is measured. */
  readonly prepare?: (scene: Scene) => Promise<Parameters<DeployedGateway['program']['start']>[0]>
  begin(scene: Scene): Promise<void>
  /** What an operator would do, or what comes right by itself. */
  end(scene: Scene): Promise<void>
  /** How long it lasts. Longer than what bounds a call in it. */
  readonly holdMs: number
  /** Calls of these fail while it lasts; none: no caller notices. */
  readonly hurts: readonly ('verified' | 'plain')[]
  /** Parts of which one must be named by /readyz as failing; `process`: it does not answer. */
  readonly readyz?: RegExp
  /** Disks that can be filled, or a nats-server. */
  readonly needs?: 'disks' | 'nats'
}

const SECOND_MS = 1_000
/** Longer than the minute that a sealed completion waits for its commit. */
const BEYOND_COMMITS_MS = 75 * SECOND_MS

const gatewayOf = ({ deployment: { gateways } }: Scene): DeployedGateway => first(gateways)
const enclaveOf = ({ deployment: { enclaves } }: Scene): DeployedEnclave => first(enclaves)

function first<Part>([part]: readonly Part[]): Part {
  if (part === undefined) throw new Error('expected a part')
  return part
}

function disksOf({ disks }: Scene): NonNullable<Scene['disks']> {
  if (disks === null) throw new Error('expected disks')
  return disks
}

const database: readonly Fault[] = [
  {
    part: 'Postgres',
    name: 'stopped',
    how: 'SIGKILL of the postmaster; then restarted',
    begin: ({ deployment }) => deployment.postgres.kill(),
    end: ({ deployment }) => deployment.postgres.restart(),
    holdMs: BEYOND_COMMITS_MS,
    hurts: ['verified', 'plain'],
    readyz: /database/,
  },
  {
    part: 'Postgres',
    name: 'hung',
    how: 'SIGSTOP of all its processes; then SIGCONT',
    begin: async ({ deployment }) => deployment.postgres.pause(),
    end: async ({ deployment }) => deployment.postgres.resume(),
    holdMs: BEYOND_COMMITS_MS,
    hurts: ['verified', 'plain'],
    readyz: /database/,
  },
  {
    part: 'Postgres',
    name: 'cut off',
    how: 'the proxy in front drops all data without an error; then works again',
    begin: ({ deployment }) => deployment.ways.database.behave('hang'),
    end: ({ deployment }) => deployment.ways.database.behave('pass'),
    holdMs: BEYOND_COMMITS_MS,
    hurts: ['verified', 'plain'],
    readyz: /database/,
  },
  {
    part: 'Postgres',
    name: 'full',
    how: 'the disk of its data is full; then space is freed, and the server is restarted if it ended',
    begin: (scene) => disksOf(scene).database.fill(),
    end: async (scene) => {
      await disksOf(scene).database.free()
      await scene.deployment.postgres.restart()
    },
    holdMs: BEYOND_COMMITS_MS,
    hurts: ['verified'],
    readyz: /database|commits/,
    needs: 'disks',
  },
]

const RELAYER = '0x23618e81e3f5cdf7f54c3d65f7fbc0abf5b21e8f'

const chain: readonly Fault[] = [
  {
    part: 'Chain',
    name: 'refused',
    how: 'its endpoint refuses connections; then accepts them again',
    begin: ({ deployment }) => deployment.ways.chain.behave('refuse'),
    end: ({ deployment }) => deployment.ways.chain.behave('pass'),
    holdMs: 15 * SECOND_MS,
    hurts: [],
  },
  {
    part: 'Chain',
    name: 'hung',
    how: 'its endpoint accepts requests and does not answer; then answers again',
    begin: ({ deployment }) => deployment.ways.chain.behave('hang'),
    end: ({ deployment }) => deployment.ways.chain.behave('pass'),
    holdMs: 25 * SECOND_MS,
    hurts: [],
  },
  {
    part: 'Chain',
    name: 'reorganised',
    how: '5 empty blocks replace its last 5 blocks (anvil_reorg)',
    begin: async ({ deployment }) => void (await deployment.callChain('anvil_reorg', [5, []])),
    end: async () => undefined,
    holdMs: 10 * SECOND_MS,
    hurts: [],
  },
  {
    part: 'Chain',
    name: 'relayer out of funds',
    how: "the relayer's balance is 1 wei; then refilled",
    begin: async ({ deployment }) =>
      void (await deployment.callChain('anvil_setBalance', [RELAYER, '0x1'])),
    end: async ({ deployment }) =>
      void (await deployment.callChain('anvil_setBalance', [RELAYER, '0xffffffffffffffffffff'])),
    holdMs: 15 * SECOND_MS,
    hurts: [],
  },
]

const enclaves: readonly Fault[] = [
  {
    part: 'Enclave',
    name: 'one of two killed',
    how: 'SIGKILL; then a new enclave with a new key and log at the same socket',
    begin: (scene) => enclaveOf(scene).program.end('SIGKILL'),
    end: async (scene) => enclaveOf(scene).program.start(),
    holdMs: 15 * SECOND_MS,
    hurts: [],
  },
  {
    part: 'Enclave',
    name: 'one of two hung',
    how: 'SIGSTOP; then SIGCONT',
    begin: async (scene) => enclaveOf(scene).program.pause(),
    end: async (scene) => enclaveOf(scene).program.resume(),
    holdMs: 45 * SECOND_MS,
    hurts: [],
  },
  {
    part: 'Enclave',
    name: 'all killed',
    how: 'SIGKILL; then new enclaves at the same sockets',
    begin: async ({ deployment }) =>
      void (await Promise.all(deployment.enclaves.map(({ program }) => program.end('SIGKILL')))),
    end: async ({ deployment }) => {
      for (const { program } of deployment.enclaves) program.start()
    },
    holdMs: 15 * SECOND_MS,
    hurts: ['verified'],
    readyz: /enclave/,
  },
  {
    part: 'Enclave',
    name: 'all hung',
    how: 'SIGSTOP; then SIGCONT',
    begin: async ({ deployment }) => {
      for (const { program } of deployment.enclaves) program.pause()
    },
    end: async ({ deployment }) => {
      for (const { program } of deployment.enclaves) program.resume()
    },
    holdMs: 45 * SECOND_MS,
    hurts: ['verified'],
    readyz: /enclave/,
  },
]

const provider: readonly Fault[] = [
  {
    part: 'Provider',
    name: 'refuses connections',
    how: 'its port is closed; then opened again',
    begin: ({ deployment }) => deployment.provider.way.behave('refuse'),
    end: ({ deployment }) => deployment.provider.way.behave('pass'),
    holdMs: 10 * SECOND_MS,
    hurts: ['verified'],
  },
  ...(
    [
      ['silent', 'accepts requests and never answers', 20],
      ['stalls in mid-answer', 'half an answer, then nothing', 15],
      ['answers 500', 'each request', 10],
      ['answers 429', 'each request, with `retry-after: 2`', 10],
      ['does not answer JSON', 'a page of HTML; in streams an event that is not JSON', 10],
      ['breaks off in mid-answer', 'half an answer, then a connection reset', 10],
      ['drips', 'one byte or one chunk every 100 ms, without an end', 25],
    ] satisfies readonly (readonly [ProviderFault, string, number])[]
  ).map(
    ([fault, how, hold]): Fault => ({
      part: 'Provider',
      name: fault,
      how,
      begin: async ({ deployment }) => deployment.provider.fail(fault),
      end: async ({ deployment }) => deployment.provider.fail(null),
      holdMs: hold * SECOND_MS,
      hurts: ['verified'],
    }),
  ),
]

const DESCRIPTORS_MAX = 96
const HEAP_MIB = 128
const LARGE_BODIES = 32
/** Their lines are more than pipes, streams and the log's own queue hold. */
const LOGGED_CALLS = 12_000
const LARGE_BODY_BYTES = 9 * 1024 * 1024

/** Connections that say nothing, of the row that runs. */
let silent: Socket[] = []

const process_: readonly Fault[] = [
  {
    part: 'Gateway',
    name: 'descriptors used up',
    how: `started with ${DESCRIPTORS_MAX} (\`ulimit -n\`); 200 idle connections; then closed`,
    prepare: async () => ({ descriptorsMax: DESCRIPTORS_MAX }),
    begin: async (scene) => {
      silent = Array.from({ length: 200 }, () => {
        const socket = connect(gatewayOf(scene).port, '127.0.0.1')
        return socket.on('error', () => socket.destroy())
      })
    },
    end: async () => {
      for (const socket of silent) socket.destroy()
    },
    holdMs: 25 * SECOND_MS,
    hurts: [],
  },
  {
    part: 'Gateway',
    name: 'memory',
    how: `started with a heap of ${HEAP_MIB} MiB; ${LARGE_BODIES} calls at once with bodies of 9 MiB, repeated`,
    prepare: async () => ({ nodeArguments: [`--max-old-space-size=${HEAP_MIB}`] }),
    begin: async (scene) => void crowd(scene),
    end: async () => {
      isCrowded = false
    },
    holdMs: 20 * SECOND_MS,
    hurts: [],
  },
  ...[3_600, -3_600].map(
    (seconds): Fault => ({
      part: 'Gateway',
      name: `clock an hour ${seconds > 0 ? 'ahead' : 'behind'}`,
      how: 'the clock of the process jumps; then jumps back',
      begin: (scene) => gatewayOf(scene).setClock(seconds * 1_000),
      end: (scene) => gatewayOf(scene).setClock(0),
      holdMs: 15 * SECOND_MS,
      hurts: [],
    }),
  ),
  ...[3_600, -3_600].map(
    (seconds): Fault => ({
      part: 'Enclave',
      name: `clock of one of two an hour ${seconds > 0 ? 'ahead' : 'behind'}`,
      how: 'the clock of the process jumps, but not the clock of its security module; then jumps back',
      begin: (scene) => enclaveOf(scene).setClock(seconds * 1_000),
      end: (scene) => enclaveOf(scene).setClock(0),
      holdMs: 15 * SECOND_MS,
      hurts: [],
    }),
  ),
  {
    part: 'Gateway',
    name: 'disk full',
    how: `the disk of DATA_DIR and of the log (standard error) is full while ${LOGGED_CALLS} calls are logged; then space is freed`,
    prepare: async (scene) => {
      const { path } = disksOf(scene).gateway
      const variables = { DATA_DIR: join(path, 'data') }
      return { variables, logFile: join(path, 'gateway.log') }
    },
    begin: async (scene) => {
      await disksOf(scene).gateway.fill()
      void writeLog(gatewayOf(scene))
    },
    end: (scene) => disksOf(scene).gateway.free(),
    holdMs: 15 * SECOND_MS,
    hurts: [],
    needs: 'disks',
  },
  {
    part: 'Gateway',
    name: 'log reader stops',
    how: `nothing reads the pipe of standard error while ${LOGGED_CALLS} calls are logged; then it is read again`,
    begin: async (scene) => {
      const gateway = gatewayOf(scene)
      gateway.program.readOutput(false)
      void writeLog(gateway)
    },
    end: async (scene) => gatewayOf(scene).program.readOutput(true),
    holdMs: 15 * SECOND_MS,
    hurts: [],
  },
  {
    part: 'Gateway',
    name: 'one of two killed',
    how: 'SIGKILL; then restarted',
    begin: (scene) => gatewayOf(scene).program.end('SIGKILL'),
    end: async (scene) => gatewayOf(scene).program.start(),
    holdMs: 10 * SECOND_MS,
    hurts: [],
    readyz: /process/,
  },
  {
    part: 'Gateway',
    name: 'one of two hung',
    how: 'SIGSTOP; then SIGCONT',
    begin: async (scene) => gatewayOf(scene).program.pause(),
    end: async (scene) => gatewayOf(scene).program.resume(),
    holdMs: 20 * SECOND_MS,
    hurts: [],
    readyz: /process/,
  },
]

/** Whether large bodies are sent, again and again. */
let isCrowded = false

async function crowd({ deployment }: Scene): Promise<void> {
  isCrowded = true
  const { origin } = first(deployment.gateways)
  const content = 'x'.repeat(LARGE_BODY_BYTES)
  const body = JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content }] })
  const headers = {
    authorization: `Bearer ${deployment.key}`,
    'content-type': 'application/json',
  }
  const sendOn = async () => {
    while (isCrowded) {
      await fetch(`${origin}/v1/verified/chat/completions`, { method: 'POST', headers, body })
        .then((reply) => reply.arrayBuffer())
        .catch(() => sleep(100))
      await sleep(100)
    }
  }
  await Promise.all(Array.from({ length: LARGE_BODIES }, sendOn))
}

/** A line for each call. */
async function writeLog({ origin }: DeployedGateway): Promise<void> {
  for (let call = 0; call < LOGGED_CALLS; call += 20)
    await Promise.all(
      Array.from({ length: 20 }, () =>
        fetch(`${origin}/v1/models`, { signal: AbortSignal.timeout(5_000) })
          .then((reply) => reply.arrayBuffer())
          .catch(() => undefined),
      ),
    )
}

const bus: readonly Fault[] = [
  {
    part: 'NATS',
    name: 'stopped',
    how: 'SIGKILL of the server; then restarted',
    begin: async ({ deployment }) => deployment.nats?.kill(),
    end: async ({ deployment }) => deployment.nats?.restart(),
    holdMs: 15 * SECOND_MS,
    hurts: [],
    needs: 'nats',
  },
  {
    part: 'NATS',
    name: 'cut off',
    how: 'the proxy in front drops all data without an error; then works again',
    begin: async ({ deployment }) => deployment.ways.nats?.behave('hang'),
    end: async ({ deployment }) => deployment.ways.nats?.behave('pass'),
    holdMs: 20 * SECOND_MS,
    hurts: [],
    needs: 'nats',
  },
]

/** Whether the scene has what a fault needs. */
export function canBefall({ needs }: Fault, { disks, deployment }: Scene): boolean {
  if (needs === 'disks') return disks !== null
  return needs !== 'nats' || deployment.nats !== null
}

/** All faults, in the order of the table. */
export const FAULTS: readonly Fault[] = [
  ...database,
  ...chain,
  ...enclaves,
  ...process_.filter(({ part }) => part === 'Enclave'),
  ...provider,
  ...bus,
  ...process_.filter(({ part }) => part === 'Gateway'),
]
