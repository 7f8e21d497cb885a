import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { awaitFreePort } from '#src/local/free-port.ts'
import { serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'
import { startTestChain } from './chain.ts'
import { Program } from './deployment/program.ts'
import { startPostgres } from './postgres.ts'

/** A public test network's id; production refuses the development chain's id. */
const CHAIN_ID = 84_532

/** All parts that a staging gateway needs, running, as in deploy/STAGING.md. */
export type StagingParts = {
  /** Variables of a gateway on these parts, including production and staging. */
  readonly variables: Readonly<Record<string, string>>
  /** Where that gateway listens. */
  readonly origin: string
  readonly metricsUrl: string
  /** Certificate of the root to which its documents lead. */
  readonly rootFile: string
  /** For files that a test keeps; `stop` removes it. */
  readonly folder: string
  stop(): Promise<void>
}

/** Starts database, chain, security module and enclave; no gateway. */
export async function startStagingParts(): Promise<StagingParts> {
  await using started = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-staging-'))
  started.defer(() => rm(folder, { recursive: true, force: true }))
  const postgres = await startPostgres({})
  started.defer(() => postgres.stop())
  const chain = await startTestChain()
  started.defer(() => chain.dispose())
  await chain.rpc.call('anvil_setChainId', [CHAIN_ID])
  const nsm = await serveSoftwareNsm({
    socketPath: join(folder, 'nsm.sock'),
    rootFile: join(folder, 'root.pem'),
  })
  started.defer(nsm.close)
  const signed = { CHAIN_ID: String(CHAIN_ID), CONTRACT_ADDRESS: chain.contract }
  const socket = join(folder, 'enclave.sock')
  const enclave = new Program({
    file: 'enclave/main.ts',
    variables: { ...signed, ENCLAVE_SOCKET: socket, NSM_SOCKET: nsm.socketPath },
  })
  enclave.start()
  started.defer(() => enclave.end('SIGKILL'))
  const port = await awaitFreePort(0)
  const metricsPort = await awaitFreePort(0)
  const running = started.move()
  return {
    variables: {
      ...signed,
      NODE_ENV: 'production',
      AFFIDAVIT_STAGING: 'true',
      DATABASE_URL: postgres.url,
      CHAIN_RPC_URL: chain.rpcUrl,
      RELAYER_PRIVATE_KEY: chain.relayerKey,
      ENCLAVE_URL: `unix:${socket}`,
      HISTORY_ALL: 'false',
      PORT: String(port),
      METRICS_PORT: String(metricsPort),
    },
    origin: `http://127.0.0.1:${port}`,
    metricsUrl: `http://127.0.0.1:${metricsPort}/metrics`,
    rootFile: nsm.rootFile,
    folder,
    stop: () => running.disposeAsync(),
  }
}
