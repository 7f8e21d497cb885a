import { CopyButton } from '../kit/values.tsx'
import { NEW_TAB } from './new-tab.ts'

/** A notary, as a link to its log. In another tab: this one would lose its key. */
export function NotaryLink({ notary }: { readonly notary: string }) {
  const short = `${notary.slice(0, 10)}…${notary.slice(-4)}`
  return (
    <span class="value">
      <a class="hex" {...NEW_TAB} href={`/log/${encodeURIComponent(notary)}`} title={notary}>
        {short}
      </a>{' '}
      <CopyButton text={notary} what={short} />
    </span>
  )
}
