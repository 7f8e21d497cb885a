import { expect, it } from 'vitest'
import { createLogger } from '#src/observability/logger.ts'
import { warnOfOpenHistory } from '#src/verified/records/history.ts'

it.each([
  [true, true, 1],
  [true, false, 0],
  [false, true, 0],
  [false, false, 0],
])(
  'a history that is open (%s) is warned of in production (%s) alone',
  (isHistoryOpen, isProduction, count) => {
    const lines: string[] = []
    const log = createLogger({
      level: 'info',
      destination: { write: (line: string) => void lines.push(line) },
    })
    warnOfOpenHistory({ isHistoryOpen, isProduction }, log)
    expect(lines).toHaveLength(count)
    for (const line of lines)
      expect(JSON.parse(line)).toMatchObject({
        level: 'warn',
        msg: expect.stringContaining('HISTORY_ALL is true'),
      })
  },
)
