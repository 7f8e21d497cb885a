import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { type Affidavit, startAffidavit } from './affidavit.ts'
import { startTestChain, type TestChain } from './chain.ts'
import {
  type EnclaveFleet,
  entryNamed,
  type FleetEnclave,
  startEnclaveFleet,
} from './enclave-fleet.ts'
import { type PostgresServer, startPostgres } from './postgres.ts'

/** Several gateways of one service, as deployed: processes on one Postgres, chain and enclaves. */
export type Replicas = {
  readonly postgres: PostgresServer
  readonly chain: TestChain
  readonly fleet: EnclaveFleet
  readonly enclaves: readonly FleetEnclave[]
  /** A key that each of them accepts. */
  readonly apiKey: string
  /** Starts one more gateway. */
  start(variables?: Readonly<Record<string, string>>): Promise<Affidavit>
  stop(): Promise<void>
}

const API_KEY = 'a-key-of-all-replicas'

/** Starts what gateways share, but no gateway yet. */
export async function startReplicas({
  enclaves: enclaveCount = 1,
  settings = {},
  logLevel = 'info',
}: {
  readonly enclaves?: number
  /** Settings of the Postgres server. */
  readonly settings?: Readonly<Record<string, string>>
  readonly logLevel?: string
} = {}): Promise<Replicas> {
  const [postgres, chain, fleet] = await Promise.all([
    startPostgres(settings),
    startTestChain(),
    startEnclaveFleet('0'),
  ])
  await fleet.accept([entryNamed('a1')])
  const enclaves = await Promise.all(
    Array.from({ length: enclaveCount }, (_, place) => fleet.start(`enclave-${place}`, 'a1')),
  )
  const gateways: Affidavit[] = []
  let count = 0
  return {
    postgres,
    chain,
    fleet,
    enclaves,
    apiKey: API_KEY,
    async start(variables = {}) {
      const gateway = await startAffidavit({
        dataFolder: join(fleet.folder, `gateway-${count++}`),
        logLevel,
        variables: {
          DATABASE_URL: postgres.url,
          CHAIN_RPC_URL: chain.rpcUrl,
          RELAYER_PRIVATE_KEY: chain.relayerKey,
          CONTRACT_ADDRESS: chain.contract,
          CONFIRMATIONS: '1',
          ENCLAVE_URL: enclaves.map(({ url }) => url).join(','),
          METRICS_PORT: '0',
          DEV_API_KEY: API_KEY,
          ...fleet.releaseVariables,
          ...variables,
        },
      })
      gateways.push(gateway)
      return gateway
    },
    async stop() {
      // A gateway that a signal has stopped would not end.
      for (const { pid } of gateways) resume(pid)
      await Promise.all(gateways.map((gateway) => gateway.stop()))
      await fleet.stop()
      await Promise.all([chain.dispose(), postgres.stop()])
      await rm(fleet.folder, { recursive: true, force: true })
    },
  }
}

function resume(pid: number): void {
  try {
    process.kill(pid, 'SIGCONT')
  } catch {
    // It has already ended.
  }
}
