import { shortenHex } from '../kit/shorten-hex.ts'
import { CopyButton } from '../kit/values.tsx'
import { NEW_TAB } from './new-tab.ts'

/** Opens a new tab, because leaving this page would lose the tab's key. */
export function NotaryLink({ notary }: { readonly notary: string }) {
  const short = shortenHex(notary)
  return (
    <span class="value">
      <a class="hex" {...NEW_TAB} href={`/log/${encodeURIComponent(notary)}`} title={notary}>
        {short}
      </a>{' '}
      <CopyButton text={notary} what={short} />
    </span>
  )
}
