import { useState } from 'preact/hooks'
import { FaultNotice } from '../kit/notices.tsx'
import { saveFile } from '../kit/save-file.ts'
import { writeEvidencePage } from './saved-file.ts'

type Saved = { readonly contents: string } | { readonly fault: unknown }

/** Saves one HTML file that contains the evidence and the page that checks the evidence. */
export function SaveEvidence({ source }: { readonly source: Blob }) {
  const [saved, setSaved] = useState<Saved | null>(null)
  const save = async () => {
    setSaved(null)
    try {
      const { page, hash, hasQuestion, hasAnswer } = await writeEvidencePage(source)
      saveFile(`affidavit-${hash?.slice(0, 16) ?? 'evidence'}.html`, page, 'text/html')
      setSaved({ contents: sayContents(hasQuestion, hasAnswer) })
    } catch (fault) {
      setSaved({ fault })
    }
  }
  return (
    <section class="save-evidence" aria-labelledby="save-evidence">
      <h2 id="save-evidence">Hand this evidence over</h2>
      <p class="row">
        <button type="button" onClick={() => void save()}>
          Save as one HTML file
        </button>
        <span class="grow">
          The file contains the evidence with every question and answer in it, and this page, which
          shows and checks it without a network. Your policy, and what you gave beside the evidence,
          is not in the file.
        </span>
      </p>
      <div role="status">
        {saved !== null && 'contents' in saved && <p>Saved. {saved.contents}</p>}
      </div>
      {saved !== null && 'fault' in saved && (
        <FaultNotice fault={saved.fault}>
          Only evidence in JSON can be saved like this. The gateway has the evidence of a
          completion.
        </FaultNotice>
      )}
    </section>
  )
}

function sayContents(hasQuestion: boolean, hasAnswer: boolean): string {
  const parts = [...(hasQuestion ? ['question'] : []), ...(hasAnswer ? ['answer'] : [])]
  return parts.length === 0
    ? 'Neither question nor answer can be read in the file.'
    : `Each reader of the file can read the ${parts.join(' and the ')}.`
}
