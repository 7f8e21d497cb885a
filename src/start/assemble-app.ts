import { randomUUID } from 'node:crypto'
import type { ApiKeys } from '../accounts/api-keys.ts'
import type { App } from '../api/app.ts'
import type { RelayerFollowers } from '../chain/relayer-followers.ts'
import type { GatewayConfig } from '../config.ts'
import { createAttestationCheck } from '../enclaves/enclave-check.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import type { CallObserver } from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import { createDatabaseCheck } from '../storage/database-check.ts'
import { createBootStatementsStore } from '../verified/boot-statements-store.ts'
import type { EvidenceSources } from '../verified/evidence.ts'
import { createHeadAttestationsStore } from '../verified/head-attestations-store.ts'
import { createLogsStore } from '../verified/logs-store.ts'
import { createRecordsStore } from '../verified/records-store.ts'
import { type AppDependencies, createGatewayApp } from './app-routes.ts'
import type { CallLimits } from './limits.ts'
import { type NodesPart, unixMs } from './nodes.ts'
import type { Parts } from './parts.ts'
import type { UpstreamPart } from './upstream.ts'

/**
 * Puts the API together out of what runs: the stores of the database, and the parts. Nothing runs that did not before.
 */
export function assembleApp(
  config: GatewayConfig,
  {
    parts,
    enclaves,
    committer,
    keys,
    limits,
    nodes,
    upstream,
    evidence,
    broadcaster,
    observers,
    log,
  }: {
    readonly parts: Parts
    readonly enclaves: EnclavePool
    readonly committer: AppDependencies['committer']
    readonly keys: ApiKeys
    readonly limits: CallLimits
    readonly nodes: NodesPart
    readonly upstream: UpstreamPart
    readonly evidence: EvidenceSources
    readonly broadcaster: Pick<RelayerFollowers, 'status'>
    readonly observers: readonly CallObserver[]
    readonly log: Logger
  },
): App {
  const [database] = parts
  const { isHistoryOpen, keepAliveMs, bodyBytesMax, providerModels, shutdownGraceMs, logLevel, corsOrigins } =
    config
  return createGatewayApp({
    enclaves,
    committer,
    records: createRecordsStore(database),
    logs: createLogsStore(database),
    headAttestations: createHeadAttestationsStore(database),
    bootStatements: createBootStatementsStore(database),
    evidence,
    checks: {
      database: createDatabaseCheck(database),
      attestation: createAttestationCheck({ isRootKnown: config.isProduction, now: Date.now }),
      chain: () => broadcaster.status(),
    },
    keys,
    limiter: limits.limiter,
    idempotency: limits.idempotency,
    nodes: nodes.connected,
    registry: nodes.registry,
    upstream: upstream.services,
    credentials: config.credentials,
    settings: {
      isHistoryOpen,
      corsOrigins,
      keepAliveMs,
      bodyBytesMax,
      providerModels,
      shutdownGraceMs,
      logsRequests: logLevel === 'info' || logLevel === 'debug',
    },
    observers,
    log,
    now: unixMs,
    makeId,
    makeRequestId: () => `req_${makeId()}`,
  })
}

function makeId(): string {
  return randomUUID().replaceAll('-', '')
}
