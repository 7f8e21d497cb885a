import { showPage } from '../kit/frame.tsx'
import { CompletionPage } from './completion-page.tsx'

showPage(<CompletionPage name={location.pathname.replace(/^\/c\//, '')} />)
