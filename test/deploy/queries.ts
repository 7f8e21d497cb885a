import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parse } from 'yaml'

const root = join(import.meta.dirname, '../..')
/** What Prometheus reads. */
export const RULES = join(root, 'deploy/prometheus/rules.yml')
/** What Grafana reads. */
export const DASHBOARD = join(root, 'deploy/grafana/affidavit.json')

export type AlertRule = {
  readonly alert: string
  readonly expr: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}

/** A query, and where it stands. */
export type Query = { readonly where: string; readonly query: string }

type Panel = {
  readonly title: string
  readonly targets?: readonly { readonly expr: string }[]
}

/** Gives every query of the dashboard and of the alert rules, as it can be asked. */
export async function listQueries(): Promise<readonly Query[]> {
  const { groups } = parse(await readFile(RULES, 'utf8')) as {
    readonly groups: readonly { readonly rules: readonly AlertRule[] }[]
  }
  const { panels } = JSON.parse(await readFile(DASHBOARD, 'utf8')) as {
    readonly panels: readonly Panel[]
  }
  return [
    ...groups.flatMap(({ rules }) =>
      rules.map(({ alert, expr }) => ({ where: `alert ${alert}`, query: expr })),
    ),
    ...panels.flatMap(({ title, targets = [] }) =>
      targets.map(({ expr }) => ({ where: `panel ${title}`, query: fillIn(expr) })),
    ),
  ]
}

/** What Grafana puts in the place of its variables. */
function fillIn(query: string): string {
  return query
    .replaceAll('$__rate_interval', '1m')
    .replaceAll('$job', 'affidavit')
    .replaceAll('$instance', '.*')
}

/** The metrics that a query names. */
export function namesIn(query: string): readonly string[] {
  return query.match(/\b(?:affidavit|process|nodejs)_[a-z0-9_]+\b/g) ?? []
}
