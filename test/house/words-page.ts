import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { TERMS, VERDICTS } from '#src/web/docs/words.ts'

const PAGE = join(import.meta.dirname, '../../docs/words.md')

/** Gives docs/words.md, made of the words that the page /docs shows. */
export function renderWords(): string {
  return `# Words

The terms of Affidavit. Docs, help, messages and pages use a term, and none of the words beside it (\`…\` stands for at most three words).

This page is written by \`npm run docs\` from \`src/web/docs/words.ts\`; a test holds it to be current.

| term | meaning | words not used for it |
| --- | --- | --- |
${TERMS.map(({ term, means, unused }) => `| ${term} | ${means} | ${unused} |`).join('\n')}

## Verdicts, and states of a check

| word | meaning | what to do |
| --- | --- | --- |
${VERDICTS.map(({ word, means, next }) => `| ${word} | ${means} | ${next} |`).join('\n')}
`
}

/** The committed page. */
export function readWordsPage(): string {
  return readFileSync(PAGE, 'utf8')
}

if (import.meta.main) writeFileSync(PAGE, renderWords())
