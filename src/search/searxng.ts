import type { SearchAdapter } from './adapter.ts'
import { expectObject, listOf, memberOf } from './answer-members.ts'

/**
 * SearXNG's JSON, which its `settings.yml` must allow (`search.formats`), or it answers 403. A form and not a query string: what
 * people search for has no place in access logs. It knows no number of results.
 */
export const SEARXNG: SearchAdapter = {
  defaultUrl: null,
  request: ({ query }) => ({
    method: 'POST',
    path: '/search',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ q: query, format: 'json' }).toString(),
  }),
  readItems: (answer) => {
    expectObject(answer)
    return listOf(answer, 'results').map((item) => ({
      title: memberOf(item, 'title'),
      url: memberOf(item, 'url'),
      snippet: memberOf(item, 'content'),
    }))
  },
}
