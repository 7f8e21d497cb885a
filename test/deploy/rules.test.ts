import { spawnSync } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse, stringify } from 'yaml'
import { listMetrics } from '../house/metrics-page.ts'
import { folderOfTest } from '../support/folders.ts'
import { needProgram } from '../support/needs.ts'
import { ALERT_CASES } from './alert-cases.ts'
import { type AlertRule, DASHBOARD, listQueries, namesIn, RULES } from './queries.ts'

const PROMTOOL = needProgram('promtool')

async function readRules(): Promise<readonly AlertRule[]> {
  const file = parse(await readFile(RULES, 'utf8')) as {
    readonly groups: readonly { readonly rules: readonly AlertRule[] }[]
  }
  return file.groups.flatMap(({ rules }) => rules)
}

/** The cases as promtool reads them: each alert is silent before its time, and fires after it. */
function writeTests(rulesFile: string, rules: readonly AlertRule[]): string {
  const tests = ALERT_CASES.map(({ alert, bad, good, labels, silentAt, firesAt }) => {
    const rule = rules.find((one) => one.alert === alert)
    if (rule === undefined) throw new Error(`expected a rule ${alert}`)
    const fired = {
      exp_labels: { ...rule.labels, ...labels },
      exp_annotations: rule.annotations,
    }
    return {
      name: alert,
      interval: '15s',
      input_series: [...bad, ...good].map(([series, values]) => ({ series, values })),
      alert_rule_test: [
        { eval_time: silentAt, alertname: alert, exp_alerts: [] },
        { eval_time: firesAt, alertname: alert, exp_alerts: [fired] },
      ],
    }
  })
  return stringify({ rule_files: [rulesFile], evaluation_interval: '15s', tests })
}

describe('the alert rules', () => {
  it.runIf(PROMTOOL.isMet)(PROMTOOL.title('promtool takes the alert rules'), () => {
    const { status, stdout, stderr } = spawnSync('promtool', ['check', 'rules', RULES], {
      encoding: 'utf8',
    })
    expect(status, stderr).toBe(0)
    expect(stdout).toContain('SUCCESS')
  })

  it('every alert rule has a case of its own', async () => {
    const rules = await readRules()
    expect(ALERT_CASES.map(({ alert }) => alert).toSorted()).toEqual(
      rules.map(({ alert }) => alert).toSorted(),
    )
  })

  it.runIf(PROMTOOL.isMet)(
    PROMTOOL.title('the alerts fire when they should, for whom they should, and not before'),
    async () => {
      const folder = folderOfTest()
      const run = async (rulesFile: string) => {
        const file = join(folder, 'tests.yml')
        await writeFile(file, writeTests(rulesFile, await readRules()))
        return spawnSync('promtool', ['test', 'rules', file], { encoding: 'utf8' })
      }
      const { status, stdout, stderr } = await run(RULES)
      expect(status, stdout + stderr).toBe(0)
      // The same cases do not pass with a rule that never fires.
      const broken = join(folder, 'broken.yml')
      const text = await readFile(RULES, 'utf8')
      await writeFile(
        broken,
        text.replace('affidavit_database_up == 0', 'affidavit_database_up == 7'),
      )
      expect((await run(broken)).status).not.toBe(0)
    },
  )
})

describe('what rules and dashboard ask for', () => {
  const known = new Map(listMetrics().map((metric) => [metric.name, metric]))

  /** Histograms are asked by the names of their series. */
  const metricOf = (name: string) =>
    known.get(name) ?? known.get(name.replace(/_(bucket|sum|count)$/, ''))

  it('rules and dashboard ask only for metrics that a gateway has', async () => {
    const queries = await listQueries()
    expect(queries.length).toBeGreaterThan(40)
    const names = new Set(queries.flatMap(({ query }) => namesIn(query)))
    expect(names.size).toBeGreaterThan(30)
    expect([...names].filter((name) => metricOf(name) === undefined)).toEqual([])
  })

  it('a metric that a gateway does not have is found out', () => {
    expect(namesIn('rate(affidavit_nothing_total[5m])').map(metricOf)).toEqual([undefined])
  })

  it('the dashboard shows each of our own metrics at least once', async () => {
    const text = await readFile(DASHBOARD, 'utf8')
    const shown = new Set(namesIn(text).map((name) => metricOf(name)?.name))
    const own = [...known.keys()].filter((name) => name.startsWith('affidavit_'))
    expect(own.filter((name) => !shown.has(name))).toEqual([])
  })
})
