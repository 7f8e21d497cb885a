import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Identity } from '../../enclave/protocol/messages.ts'
import { CALLS_MAX } from '../app-routes.ts'
import { type Broadcaster, createBroadcaster } from '../chain/broadcaster.ts'
import type { GatewayConfig } from '../config.ts'
import { createOperations } from '../control/create-operations.ts'
import { StartFailure } from '../local/supervised-process.ts'
import type { Logger } from '../logger.ts'
import { createMeter } from '../metrics/meter.ts'
import { createAccounts } from '../services/accounts.ts'
import { type ApiKeys, createApiKeys } from '../services/api-keys.ts'
import { createEnclaveClient, type EnclaveClient } from '../services/enclave-client.ts'
import { EnclaveError } from '../services/enclave-error.ts'
import { createAnchorBlocksStore } from '../stores/anchor-blocks.ts'
import { createAnchorsStore } from '../stores/anchors.ts'
import { createHeadAttestationsStore } from '../stores/head-attestations.ts'
import { createKeysStore } from '../stores/keys.ts'
import { listen, tryAddress } from './address.ts'
import { assembleApp } from './assemble-app.ts'
import { startBlockKeeper } from './block-keeper.ts'
import type { Chain } from './chain.ts'
import { startCommitter } from './committer.ts'
import { openControl } from './control.ts'
import { DEVELOPMENT_ACCOUNT, openDevelopmentKey } from './development-key.ts'
import { findEnclaveFaults } from './enclave-check.ts'
import { describeGateway, type GatewayFacts } from './gateway-facts.ts'
import { startHeadAttestations } from './head-attestations.ts'
import { type Home, openHome } from './home.ts'
import { chooseTiers, openLimits } from './limits.ts'
import { startMetrics } from './metrics.ts'
import { type DemoAgent, startDemoAgent } from './node-agent.ts'
import { startNodes } from './nodes.ts'
import { type Parts, startParts } from './parts.ts'
import { pullUntilEnd } from './pull-until-end.ts'
import { startUpstream } from './upstream.ts'

/** A gateway that serves. `stop` finishes running calls, commits, and ends every part; calling it twice is one stop. */
export type Gateway = { readonly facts: GatewayFacts; stop(): Promise<void> }

/**
 * Starts everything that the configuration asks for and serves. When something fails, all that was started is ended
 * again and it rejects with StartFailure or DataFolderInUse, whose messages are for whoever started it.
 */
export async function startGateway(config: GatewayConfig, log: Logger): Promise<Gateway> {
  const tiers = await chooseTiers(config.tiersFile, config)
  await tryAddress(config)
  await using started = new AsyncDisposableStack()
  const home = config.isProduction ? null : await openHome(config.dataFolder)
  if (home !== null) started.defer(() => home.leave())
  // Known only later, and told of the chain's restarts from the beginning.
  const later: { broadcaster?: Broadcaster } = {}
  const parts = await startParts(config, {
    home,
    log,
    onStarted: (stop) => started.defer(stop),
    onChainRestart: () => later.broadcaster?.notify(),
  })
  const [database, chain, enclavePart] = parts
  const enclave = createEnclaveClient({
    socketPath: enclavePart.socketPath,
    callsMax: CALLS_MAX,
    now: Date.now,
  })
  started.defer(() => enclave.close())
  await checkEnclave(enclave, { config, chain })
  const broadcaster = startBroadcaster({ database, chain, confirmations: config.confirmations, log })
  later.broadcaster = broadcaster
  started.defer(() => broadcaster.stop())
  const meter = config.metrics === null ? null : createMeter()
  const { pull, expectEnd } = pullUntilEnd(enclave)
  const following = { ...enclave, pull }
  const committer = startCommitter({
    enclave: following,
    database,
    chain,
    fees: config.fees,
    broadcaster,
    countCommit: meter?.countCommit,
    log,
  })
  started.defer(() => committer.stop())
  // Before the committer stops: an enclave that ends in good order waits until all it sealed is committed.
  started.defer(() => {
    if (enclavePart.local !== null) expectEnd()
    return enclavePart.stop()
  })
  const attestations = startHeadAttestations(config, {
    chain,
    enclave,
    committer,
    store: createHeadAttestationsStore(database),
    log,
  })
  started.defer(() => attestations.stop())
  const blocks = startBlockKeeper({ blocks: createAnchorBlocksStore(database), chain, log })
  started.defer(() => blocks.stop())
  const keys = await openKeys(config, parts, home)
  const accounts = createAccounts({
    keys: createKeysStore(database),
    tiers: [...tiers.byName.keys()],
    now: Date.now,
  })
  if (home !== null) started.defer(await openControl(createOperations({ keys: keys.keys, accounts }), home))
  const limits = await openLimits({
    ...{ database, tiers, enclave, committer, log },
    isEnclaveLocal: enclavePart.local !== null,
  })
  started.defer(() => limits.stop())
  const nodes = await startNodes({ database, keys: keys.keys, log })
  started.defer(() => nodes.stop())
  const upstream = startUpstream(config.upstream, enclavePart.local?.demoOrigin ?? null)
  started.defer(() => upstream.stop())
  const parted = { database, chain, committer, broadcaster, nodes: nodes.connected, enclave }
  const metrics =
    config.metrics === null || meter === null
      ? null
      : await startMetrics(config.metrics, { meter, ...parted })
  started.defer(async () => metrics?.close())
  const app = assembleApp(config, {
    parts,
    enclave,
    committer,
    keys: keys.keys,
    limits,
    nodes,
    upstream,
    evidence: blocks.sources,
    broadcaster,
    observers: meter === null ? [] : [meter.calls],
    log,
  })
  const url = await listen(app, config)
  // The app is closed first, because the agent may be serving its last calls.
  let agent: DemoAgent | null = null
  started.defer(async () => {
    await app.close()
    await agent?.stop()
  })
  agent = await startDemoAgent(config, {
    url,
    apiKey: keys.shown,
    demoOrigin: enclavePart.local?.demoOrigin ?? null,
    isServed: () => nodes.connected.dispatcher.models().length > 0,
    log,
  })
  const running = started.move()
  return {
    facts: describeGateway(config, parts, {
      url,
      metricsUrl: metrics?.url ?? null,
      apiKey: keys.shown,
      nodeId: agent?.ready.nodeId ?? null,
    }),
    stop: () => running.disposeAsync(),
  }
}

/** The local chain's pool is emptied by its upkeep when it is stuck (src/local/chain-upkeep.ts): fill it again soon. */
const LOCAL_REBROADCAST_MS = 2_000
/** How long an enclave that is just (re)starting is waited for: it boots in about a second, in an image in ten. */
const ENCLAVE_WAIT_MS = 20_000
const ENCLAVE_RETRY_MS = 250

async function checkEnclave(
  enclave: EnclaveClient,
  { config, chain }: { readonly config: GatewayConfig; readonly chain: Chain },
): Promise<void> {
  const identity = await awaitIdentity(enclave)
  const { isProduction } = config
  const faults = await findEnclaveFaults(identity, { domain: chain, isProduction, at: new Date() })
  if (faults.length > 0) throw new StartFailure(faults.join('\n'))
}

async function awaitIdentity(enclave: EnclaveClient): Promise<Identity> {
  const deadline = performance.now() + ENCLAVE_WAIT_MS
  for (;;) {
    try {
      return await enclave.identity()
    } catch (error) {
      if (!(error instanceof EnclaveError)) throw error
      if (performance.now() > deadline) throw new StartFailure(`enclave: ENCLAVE_URL: ${error.message}`)
      await sleep(ENCLAVE_RETRY_MS)
    }
  }
}

function startBroadcaster({
  database,
  chain,
  confirmations,
  log,
}: {
  readonly database: Parts[0]
  readonly chain: Chain
  readonly confirmations: number
  readonly log: Logger
}): Broadcaster {
  const { rpc, chainId, contract, relayer } = chain
  const anchors = createAnchorsStore(database)
  const broadcaster = createBroadcaster({
    rpc,
    anchors,
    relayer: relayer.address,
    chainId,
    contract,
    confirmations,
    log,
    ...(chain.publicUrl === null ? {} : { rebroadcastMs: LOCAL_REBROADCAST_MS }),
  })
  broadcaster.start()
  return broadcaster
}

/** The keys, and the one to show: in production none is made. */
async function openKeys(
  { devApiKey }: GatewayConfig,
  [database]: Parts,
  home: Home | null,
): Promise<{ readonly keys: ApiKeys; readonly shown: string | null }> {
  const options = { keys: createKeysStore(database), now: Date.now, random: randomBytes }
  const keys = createApiKeys(options)
  if (home === null) return { keys, shown: null }
  if (devApiKey === null) return { keys, shown: await openDevelopmentKey(home.dataFolder, keys) }
  const { id: accountId } = await keys.openAccount(DEVELOPMENT_ACCOUNT)
  return { keys: createApiKeys({ ...options, fixedKey: { text: devApiKey, accountId } }), shown: devApiKey }
}
