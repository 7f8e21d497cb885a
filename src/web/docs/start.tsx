import './docs.css'
import { showPage } from '../kit/frame.tsx'
import { DocsPage } from './docs-page.tsx'

showPage(<DocsPage />)
