import type { BundleSource } from '#attestation/evidence/bundle-source.ts'
import type { AdminLog } from '../../accounts/admin-log-store.ts'
import type { Route } from '../../api/route.ts'
import type { Anchoring } from '../../chain/anchoring.ts'
import type { Opening } from '../../observability/logger.ts'
import { createProviderEvidenceStore } from '../../providers/provider-evidence-store.ts'
import type { Database } from '../../storage/database.ts'
import { createErasureSweeper, recordErasures } from './erasures.ts'
import { createErasuresStore } from './erasures-store.ts'
import { createEvidence } from './evidence.ts'
import { createHistory, warnOfOpenHistory } from './history.ts'
import { historyRoutes } from './history-routes.ts'
import { createRecordsStore, type RecordsStore } from './records-store.ts'

export function openRecords(
  config: {
    readonly isProduction: boolean
    readonly isHistoryOpen: boolean
    readonly isEvidencePublic: boolean
    readonly retentionDays: number | null
    readonly source: BundleSource | null
  },
  parts: Opening & {
    readonly database: Database
    readonly adminLog: AdminLog
    readonly anchoring: Pick<Anchoring, 'evidence'>
  },
): { readonly records: RecordsStore; readonly historyRoutes: readonly Route[] } {
  const { database, adminLog, anchoring, log, onStarted } = parts
  const { isHistoryOpen: isOpen, isEvidencePublic, retentionDays, source } = config
  warnOfOpenHistory(config, log)
  const erasures = createErasuresStore(database)
  const sweeper = createErasureSweeper({ store: erasures, retentionDays, log })
  sweeper.start()
  onStarted(() => sweeper.stop())
  const records = createRecordsStore(database, anchoring.evidence.chainId)
  const eraseRecords = recordErasures(adminLog)
  return {
    records,
    historyRoutes: historyRoutes({
      history: createHistory({ records, isOpen, eraseRecords }),
      evidence: createEvidence({
        ...anchoring.evidence,
        records,
        providers: createProviderEvidenceStore(database),
        isOpen,
        source,
        log,
      }),
      isEvidencePublic,
    }),
  }
}
