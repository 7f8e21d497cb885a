import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { ROUTES } from '../support/api-routes.ts'

const page = readFileSync(join(import.meta.dirname, '../../docs/endpoints.md'), 'utf8')

/**
 * ``| `GET`, `POST /a`, `DELETE …/{id}` | … |`` → GET /a, POST /a, DELETE /a/{id}; `…` is the row's
 * first path.
 */
function endpointsOf(row: string): readonly string[] {
  const cell = row.split('|')[1] ?? ''
  const words = [...cell.matchAll(/`([^`]+)`/g)].map(([, word = '']) => word)
  const base = words.flatMap((word) => word.match(/\/[^…]\S*$/)?.[0] ?? [])[0] ?? '/'
  let method = ''
  let waiting: string[] = []
  return words.flatMap((word) => {
    method = word.match(/^[A-Z]+/)?.[0] ?? method
    const path = word.match(/\S*\/\S*$/)?.[0]
    if (path === undefined) {
      waiting.push(method)
      return []
    }
    const methods = [...waiting, method]
    waiting = []
    return methods.map((each) => `${each} ${path.replace('…', base)}`)
  })
}

it('the table of docs/endpoints.md names every endpoint and no endpoint that does not exist', () => {
  const rows = page.split('\n').filter((line) => /^\| `[A-Z]+[ `]/.test(line))
  const documented = ROUTES.filter(({ path }) => !/^\/(docs|openapi\.json)$/.test(path))
  const served = documented.map(
    ({ method, path }) => `${method.toUpperCase()} ${path.replace(/[:*](\w+)/g, '{$1}')}`,
  )
  expect(rows.flatMap(endpointsOf).sort()).toEqual(served.sort())
})
